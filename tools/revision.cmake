# Writes OUT, a source with the git revision of SOURCE ("-dirty": with changes; "" = not a clone),
# if that is another than it says. Run at every build: cmake -DSOURCE=... -DOUT=... -P
# revision.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(text
    "namespace ddpsim::cli {\nextern const char* const kRevision;\nconst char* const kRevision = \"${revision}\";\n}\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
