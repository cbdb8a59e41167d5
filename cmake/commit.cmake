# Writes OUTPUT, a source file with the commit of SOURCE, if it has changed. Run with each build. $TRIREME_COMMIT names the commit of
# sources that are no repository, such as those of an image.
set(commit "$ENV{TRIREME_COMMIT}")
find_program(git git)
if(git AND commit STREQUAL "")
  unset(ENV{GIT_DIR})  # of a repository that this one is not
  unset(ENV{GIT_WORK_TREE})
  get_filename_component(source ${SOURCE} REALPATH)
  set(ask ${git} -C ${source} -c safe.directory=${source})  # also if another user owns it
  execute_process(COMMAND ${ask} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(top STREQUAL source)  # not of a repository that this one lies in
    execute_process(COMMAND ${ask} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "extern const char trireme_commit[];\nconst char trireme_commit[] = \"${commit}\";\n")
