# Run by the build: fills build_info.cpp.in with the commit of the source tree.
find_program(GIT git)
set(FULLSHARD_GIT_HASH unknown)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(FULLSHARD_GIT_HASH ${described})
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
