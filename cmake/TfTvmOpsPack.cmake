# tf_tvm_ops_add_pack(<target>
#                     SHAPES <file>...         tables of shapes (YAML)
#                     TARGETS <name>...        such as cpu:x86-64-v3 cpu:x86-64-v4
#                     OUTPUT <folder>          the pack
#                     [ALL_GENERIC]            generic kernels for every dtype, not only in the tables
#                     [CACHE <folder>]         compiled kernels, kept from one build to the next
#                     [DEPENDS <file>...]      what else the pack is made from
#                     [PYTHONPATH <folder>])   where to find the package tf_tvm_ops; default: where
#                                              Python finds it
#
# Adds a target, built with `all`, that generates a pack with `tf-tvm-ops generate` of the Python
# found. It is made again when one of its files changes. Kernels that this machine can neither run
# nor emulate, and so not verify, are left out of the pack.
function(tf_tvm_ops_add_pack target)
  cmake_parse_arguments(PARSE_ARGV 1 PACK "ALL_GENERIC" "OUTPUT;CACHE;PYTHONPATH" "SHAPES;TARGETS;DEPENDS")
  if(PACK_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tf_tvm_ops_add_pack: unknown arguments: ${PACK_UNPARSED_ARGUMENTS}")
  endif()
  foreach(required SHAPES TARGETS OUTPUT)
    if(NOT PACK_${required})
      message(FATAL_ERROR "tf_tvm_ops_add_pack: ${required} is missing")
    endif()
  endforeach()

  set(options)
  set(tables)
  foreach(table IN LISTS PACK_SHAPES)
    get_filename_component(path "${table}" ABSOLUTE)
    list(APPEND tables "${path}")
    list(APPEND options --shapes "${path}")
  endforeach()
  foreach(name IN LISTS PACK_TARGETS)
    list(APPEND options --target "${name}")
  endforeach()
  get_filename_component(output "${PACK_OUTPUT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  if(PACK_ALL_GENERIC)
    list(APPEND options --all-generic)
  endif()
  if(PACK_CACHE)
    get_filename_component(folder "${PACK_CACHE}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    list(APPEND options --cache "${folder}")
  endif()
  set(environment)
  if(PACK_PYTHONPATH)
    set(environment "${CMAKE_COMMAND}" -E env
                    --modify "PYTHONPATH=path_list_prepend:${PACK_PYTHONPATH}" --)
  endif()

  add_custom_command(
    OUTPUT "${output}/manifest.json"
    COMMAND ${environment} "${Python_EXECUTABLE}" -m tf_tvm_ops generate ${options}
            --out "${output}" --skip-unverifiable
    # A pack that came out the same is left as it is, with the old time.
    COMMAND "${CMAKE_COMMAND}" -E touch "${output}/manifest.json"
    DEPENDS ${tables} ${PACK_DEPENDS}
    COMMENT "Generating the pack ${output}"
    USES_TERMINAL VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${output}/manifest.json")
endfunction()
