# find_package(tf_tvm_ops) for projects that generate packs of their own: see TfTvmOpsPack.cmake.
include(CMakeFindDependencyMacro)
find_dependency(Python 3.10 COMPONENTS Interpreter)
include("${CMAKE_CURRENT_LIST_DIR}/TfTvmOpsPack.cmake")
