# Writes an entry of ctest for each suite of a GoogleTest program: a process per suite, where
# gtest_discover_tests has one per test. A test that skips fails its suite: ctest would not see it.
# -DPROGRAM= -DLABEL= -DFILE= (to be written)
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[^ \n]+\\." suites "${listed}")
set(entries "")
foreach(suite ${suites})
  string(STRIP ${suite} suite)
  string(APPEND entries "add_test(\"${suite}*\" \"${PROGRAM}\" \"--gtest_filter=${suite}*\")\n"
         "set_tests_properties(\"${suite}*\" PROPERTIES LABELS ${LABEL} TIMEOUT 900\n"
         "  FAIL_REGULAR_EXPRESSION \"SKIPPED\")\n")
endforeach()
file(WRITE ${FILE} "${entries}")
