# Makes page_template.cc (and page.html) in OUT: cmake -D NPM= -D NODE= -D SOURCE= -D OUT= -D
# WITH_TESTS= -P make.cmake
#
# The packages of package-lock.json are installed in OUT, once. Where they cannot be had, the
# template says why, and page.html is not written, so that the next build tries again. A page that
# does not bundle fails the build.
file(MAKE_DIRECTORY ${OUT})
file(REMOVE ${OUT}/page.html)

set(installed ${OUT}/node_modules/.package-lock.json)
set(fresh TRUE)
if(NOT EXISTS ${installed} OR ${SOURCE}/package-lock.json IS_NEWER_THAN ${installed})
  set(fresh FALSE)
elseif(WITH_TESTS AND NOT EXISTS ${OUT}/node_modules/playwright-core)
  set(fresh FALSE)
endif()
if(NOT fresh)
  file(COPY ${SOURCE}/package.json ${SOURCE}/package-lock.json ${SOURCE}/.npmrc DESTINATION ${OUT})
  set(omit --omit=dev)
  if(WITH_TESTS)
    set(omit)
  endif()
  execute_process(COMMAND ${NPM} ci ${omit} --prefer-offline --loglevel=error --fetch-retries=1
      --fetch-retry-mintimeout=1000
                  WORKING_DIRECTORY ${OUT} RESULT_VARIABLE failed OUTPUT_VARIABLE said
                      ERROR_VARIABLE said TIMEOUT 300)
  if(failed)
    message("npm ci failed; ddpsim is built without its page (--html):\n${said}")
    file(REMOVE_RECURSE ${OUT}/node_modules)
    set(WHY "npm could not fetch the page's packages when it was built; build again with a network")
    configure_file(${SOURCE}/no_page.cc.in ${OUT}/page_template.cc @ONLY)
    return()
  endif()
  file(TOUCH ${installed})
endif()

execute_process(COMMAND ${NODE} ${SOURCE}/build.mjs ${OUT} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "reports/page does not bundle")
endif()
