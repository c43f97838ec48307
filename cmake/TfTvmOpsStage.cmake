# Makes the folder TF_TVM_OPS_STAGE, in which the sources are the package tf_tvm_ops under its one
# name, by symbolic links: for what needs it before it is installed (the generator of the default
# pack, type checkers). Also writes and installs _build_info.py.
set(TF_TVM_OPS_STAGE "${PROJECT_BINARY_DIR}/stage")
set(stage_package "${TF_TVM_OPS_STAGE}/tf_tvm_ops")

# Not _build_info.py, which lies among the sources when installed in place.
file(GLOB staged CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tf_tvm_ops/[a-z]*.py"
     "${PROJECT_SOURCE_DIR}/tf_tvm_ops/__*.py" "${PROJECT_SOURCE_DIR}/tf_tvm_ops/*.pyi")
file(REMOVE_RECURSE "${stage_package}")
file(MAKE_DIRECTORY "${stage_package}")
foreach(path IN LISTS staged)
  get_filename_component(name "${path}" NAME)
  file(CREATE_LINK "${path}" "${stage_package}/${name}" SYMBOLIC)
endforeach()
foreach(name kernels tools)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${name}" "${stage_package}/${name}" SYMBOLIC)
endforeach()

tf_tvm_ops_ask_python(TVM_FFI_VERSION -c
                      "from importlib.metadata import version
print(version('apache-tvm-ffi'))")
set(TENSORFLOW_VERSION_REPR "None")
if(TF_TVM_OPS_WITH_TENSORFLOW)
  set(TENSORFLOW_VERSION_REPR "\"${TF_TVM_OPS_TENSORFLOW_VERSION}\"")
endif()
configure_file(cmake/_build_info.py.in "${stage_package}/_build_info.py" @ONLY)
install(FILES "${stage_package}/_build_info.py" DESTINATION .)
