# Defines the target tensorflow_framework: headers, flags and library of the TensorFlow in the
# Python found, and TF_TVM_OPS_TENSORFLOW_VERSION.

# Importing TensorFlow takes seconds, so the answers are kept until another TensorFlow is found.
tf_tvm_ops_ask_python(
  tensorflow_found -c
  "import importlib.util as u
spec = u.find_spec('tensorflow')
if spec is None:
    raise SystemExit('TensorFlow is not installed: install it, or configure with '
                     '-DTF_TVM_OPS_WITH_TENSORFLOW=OFF')
import os
print(spec.origin, os.stat(spec.origin).st_mtime_ns)")
if(NOT tensorflow_found STREQUAL "${TF_TVM_OPS_TENSORFLOW_FOUND}")
  tf_tvm_ops_ask_python(
    tensorflow_flags -c
    "import tensorflow as tf
semicolon = chr(59)  # a literal one would split this text
print(semicolon.join(tf.sysconfig.get_compile_flags()))
print(semicolon.join(tf.sysconfig.get_link_flags()))
print(tf.__version__)")
  string(REGEX REPLACE "\n" "|" tensorflow_flags "${tensorflow_flags}")
  string(REGEX MATCH "^(.*)[|](.*)[|](.*)$" matched "${tensorflow_flags}")
  set(TF_TVM_OPS_TENSORFLOW_COMPILE_FLAGS "${CMAKE_MATCH_1}" CACHE INTERNAL "")
  set(TF_TVM_OPS_TENSORFLOW_LINK_FLAGS "${CMAKE_MATCH_2}" CACHE INTERNAL "")
  set(TF_TVM_OPS_TENSORFLOW_VERSION "${CMAKE_MATCH_3}" CACHE INTERNAL "")
  set(TF_TVM_OPS_TENSORFLOW_FOUND "${tensorflow_found}" CACHE INTERNAL "")
endif()
message(STATUS "Found TensorFlow ${TF_TVM_OPS_TENSORFLOW_VERSION}")

add_library(tensorflow_framework INTERFACE)
foreach(flag IN LISTS TF_TVM_OPS_TENSORFLOW_COMPILE_FLAGS)
  if(flag MATCHES "^-I(.*)$")
    target_include_directories(tensorflow_framework SYSTEM INTERFACE "${CMAKE_MATCH_1}")
  elseif(flag MATCHES "^-D(.*)$")
    target_compile_definitions(tensorflow_framework INTERFACE "${CMAKE_MATCH_1}")
  elseif(NOT flag MATCHES "^--?std=")  # CMAKE_CXX_STANDARD says it
    target_compile_options(tensorflow_framework INTERFACE "${flag}")
  endif()
endforeach()
target_link_libraries(tensorflow_framework INTERFACE ${TF_TVM_OPS_TENSORFLOW_LINK_FLAGS})
