# Writes OUTPUT, a source file with the commit of SOURCE, if it has changed. Run with each build.
set(commit "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(source ${SOURCE} REALPATH)
  if(top STREQUAL source)  # not of a repository that this one lies in
    execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "extern const char trireme_commit[];\nconst char trireme_commit[] = \"${commit}\";\n")
