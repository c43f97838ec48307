# Defines the target tensorflow_xla: what TfTvmOpsTensorFlow found, and TensorFlow's XLA, whose
# headers include those of two libraries that TensorFlow keeps elsewhere.
get_target_property(tensorflow_include tensorflow_framework INTERFACE_INCLUDE_DIRECTORIES)
set(tensorflow_link_dirs ${TF_TVM_OPS_TENSORFLOW_LINK_FLAGS})
list(FILTER tensorflow_link_dirs INCLUDE REGEX "^-L")
list(TRANSFORM tensorflow_link_dirs REPLACE "^-L" "")

set(help "configure with -DTF_TVM_OPS_WITH_XLA=OFF to build without XLA kernels")
find_file(TENSORFLOW_XLA_HEADER tensorflow/compiler/tf2xla/xla_op_registry.h
          PATHS ${tensorflow_include} NO_DEFAULT_PATH NO_CACHE)
find_file(TENSORFLOW_CC_LIBRARY libtensorflow_cc.so.2
          PATHS ${tensorflow_link_dirs} NO_DEFAULT_PATH NO_CACHE)
foreach(needed TENSORFLOW_XLA_HEADER TENSORFLOW_CC_LIBRARY)
  if(NOT ${needed})
    message(FATAL_ERROR "TensorFlow ${TF_TVM_OPS_TENSORFLOW_VERSION} has no XLA to link with "
                        "(${needed} was not found in ${tensorflow_include} or "
                        "${tensorflow_link_dirs}): ${help}")
  endif()
endforeach()

add_library(tensorflow_xla INTERFACE)
foreach(folder IN LISTS tensorflow_include)
  target_include_directories(
    tensorflow_xla SYSTEM INTERFACE "${folder}/external/highwayhash"
                                    "${folder}/external/farmhash_archive/src")
endforeach()
target_link_libraries(tensorflow_xla INTERFACE tensorflow_framework "${TENSORFLOW_CC_LIBRARY}")
