# tf_tvm_ops_ask_python(<variable> <argument>...)
#
# Runs the Python found with these arguments and puts what it prints into the variable. Fatal if it
# fails. An argument must not contain a semicolon, at which CMake would split it.
function(tf_tvm_ops_ask_python variable)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" ${ARGN}
    OUTPUT_VARIABLE output
    ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    string(JOIN " " arguments ${ARGN})
    message(FATAL_ERROR "${Python_EXECUTABLE} ${arguments} failed:\n${error}")
  endif()
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
