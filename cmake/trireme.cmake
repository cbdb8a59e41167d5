# Build functions for the folders of trireme/: one library and one test program each, with the same flags.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release)
  set(CMAKE_CXX_FLAGS_RELEASE -O2)  # as in the release preset
endif()

set(TRIREME_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
if(TRIREME_WARNINGS_AS_ERRORS)
  list(APPEND TRIREME_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class with members from an anonymous namespace is wrong in a header, but fine in a source that a unity file includes.
  list(APPEND TRIREME_WARNINGS -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND TRIREME_WARNINGS -Wno-restrict -Wno-stringop-overflow)  # false positives in std::string with g++ 12 (GCC bug 105651)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND TRIREME_WARNINGS -Wno-deprecated-declarations)  # std::stable_sort in Debian 12's libstdc++ uses a deprecated function
endif()

if(PROJECT_IS_TOP_LEVEL)
  find_program(CCACHE ccache)
  if(CCACHE AND TRIREME_CCACHE)
    # These settings give cache hits across clones and with precompiled headers.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)
    endif()
  endif()
  find_program(MOLD mold)
  if(MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
  if(TRIREME_SANITIZE)
    add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${TRIREME_SANITIZE})
    if(TRIREME_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-Wno-tsan)  # libtorch's headers contain a fence, which the thread sanitizer does not support
    endif()
  endif()
  enable_testing()
endif()

# A precompiled header of standard headers that nearly every file without torch includes, one per set of flags. Our headers must
# still include what they use: tests/install builds against the installed headers without it.
function(trireme_std_header target)
  add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/cmake/std_pch.cpp)
  target_compile_options(${target} PRIVATE ${TRIREME_WARNINGS} ${ARGN})
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <charconv> <cmath> <cstdint> <filesystem> <fstream> <functional>
                            <map> <optional> <sstream> <string> <string_view> <utility> <variant> <vector>)
endfunction()
set(TRIREME_COLD $<$<CONFIG:Release>:-O0>)
# Not -O0 in libraries: templates of the standard library and nlohmann-json are emitted in each, and the linker keeps the first copy.
# Unoptimised copies made `trireme data prepare` a third slower.
set(TRIREME_COLD_LIBRARY $<$<CONFIG:Release>:-O1>)
trireme_std_header(trireme_std)
trireme_std_header(trireme_std_cold ${TRIREME_COLD_LIBRARY})

# trireme_library(NAME [FOLDERS folder...] [DEPENDS library...] [TORCH_DEPENDS library...] [TEST_DEPENDS library...] [TORCH] [COLD]
#                 [LINK target...] [EXCLUDE file...] [SHARDS n])
#   defines the library trireme::NAME from the sources of this folder and of the folders in it, and the test program
#   trireme_NAME_test from their *_test.cpp. trireme/rooms.txt says which of these folders may include which.
#   FOLDERS  further folders of trireme/ that belong to the library;
#   DEPENDS  libraries whose headers it may include;  TORCH_DEPENDS  the same, for libraries that only exist with torch;
#   TEST_DEPENDS  the same, for its tests only;  SHARDS  of the test program (4 with TORCH);
#   TORCH  it may include torch itself;  COLD  not performance-critical: compiled with less optimisation, for build time;
#   LINK  other libraries;  EXCLUDE  sources left out of the library.
function(trireme_library name)
  cmake_parse_arguments(arg "TORCH;COLD" "SHARDS" "FOLDERS;DEPENDS;TORCH_DEPENDS;TEST_DEPENDS;LINK;EXCLUDE" ${ARGN})
  set(sources)
  set(tests)
  list(TRANSFORM arg_FOLDERS PREPEND ${PROJECT_SOURCE_DIR}/trireme/)
  foreach(folder ${CMAKE_CURRENT_SOURCE_DIR} ${arg_FOLDERS})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*.cpp)
    list(APPEND sources ${found})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*_test.cpp)
    list(APPEND tests ${found})
  endforeach()
  list(REMOVE_ITEM sources "" ${tests} ${arg_EXCLUDE})

  add_library(trireme_${name} STATIC ${sources})
  add_library(trireme::${name} ALIAS trireme_${name})
  set_target_properties(trireme_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(trireme_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(trireme_${name} PUBLIC cxx_std_20)
  target_compile_options(trireme_${name} PRIVATE ${TRIREME_WARNINGS})
  set_target_properties(trireme_${name} PROPERTIES UNITY_BUILD ${TRIREME_UNITY} UNITY_BUILD_BATCH_SIZE 6)
  if(TRIREME_WITH_TORCH)
    list(APPEND arg_DEPENDS ${arg_TORCH_DEPENDS})
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND trireme_)
  target_link_libraries(trireme_${name} PUBLIC ${arg_DEPENDS})
  target_link_libraries(trireme_${name} PRIVATE ${arg_LINK})
  if(arg_TORCH)
    target_link_libraries(trireme_${name} PUBLIC trireme_torch)
    target_precompile_headers(trireme_${name} REUSE_FROM trireme_torch)
  elseif(arg_COLD)
    target_compile_options(trireme_${name} PRIVATE ${TRIREME_COLD_LIBRARY})
    target_precompile_headers(trireme_${name} REUSE_FROM trireme_std_cold)
  else()
    target_precompile_headers(trireme_${name} REUSE_FROM trireme_std)
  endif()
  if(NOT name STREQUAL "testing")
    set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES trireme_${name})  # installed
  endif()

  if(TRIREME_TESTS AND tests)
    if(arg_TORCH)
      if(NOT arg_SHARDS)
        set(arg_SHARDS 4)
      endif()
      set(kind TORCH SHARDS ${arg_SHARDS})
    endif()
    list(TRANSFORM arg_TEST_DEPENDS PREPEND trireme_)
    trireme_test(${name} SOURCES ${tests} LINK trireme_${name} ${arg_TEST_DEPENDS} ${kind})
  endif()
endfunction()

# Whole programs in tests run on the CPU, also on a machine with GPUs: those have their own tests.
set(TRIREME_TEST_ENVIRONMENT TRIREME_DEVICE=cpu)

# A test that takes longer is stuck. With a sanitizer, a process of libtorch alone takes seconds to start.
set(TRIREME_TEST_SECONDS 300)
if(TRIREME_SANITIZE)
  set(TRIREME_TEST_SECONDS 1800)
endif()

# trireme_test(NAME SOURCES file... LINK target... [TORCH] [SHARDS n])
#   defines the test program trireme_NAME_test; each of its tests is a ctest test. Fixtures are found through TRIREME_SOURCE_DIR.
#   TORCH  the tests include torch;
#   SHARDS  ctest runs the program n times with a part of the tests each, because loading libtorch takes half a second.
function(trireme_test name)
  cmake_parse_arguments(arg "TORCH" "SHARDS" "SOURCES;LINK" ${ARGN})
  set(target trireme_${name}_test)
  set(main trireme_test_main)
  if(arg_TORCH)
    set(main trireme_torch_test_main)
    list(APPEND arg_LINK trireme_testing)
  endif()
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LINK} ${main})
  target_precompile_headers(${target} REUSE_FROM ${main})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests POSITION_INDEPENDENT_CODE OFF
                                             UNITY_BUILD ${TRIREME_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      math(EXPR number "${shard} + 1")
      add_test(NAME ${name}.part_${number}_of_${arg_SHARDS} COMMAND ${target})
      set_tests_properties(${name}.part_${number}_of_${arg_SHARDS} PROPERTIES TIMEOUT ${TRIREME_TEST_SECONDS}
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};${TRIREME_TEST_ENVIRONMENT}")
    endforeach()
    return()
  endif()
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX ${name}. PROPERTIES TIMEOUT ${TRIREME_TEST_SECONDS}
                       ENVIRONMENT "${TRIREME_TEST_ENVIRONMENT}")
endfunction()

# trireme_program(TARGET SOURCES FOLDER LINK target...): a program that uses torch, written to FOLDER in the build folder.
function(trireme_program target sources folder)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  # An object library, because torch's precompiled header is compiled with -fPIC and programs are not.
  add_library(${target}_code OBJECT ${sources})
  target_link_libraries(${target}_code PUBLIC ${arg_LINK})
  target_compile_options(${target}_code PRIVATE ${TRIREME_WARNINGS})
  target_precompile_headers(${target}_code REUSE_FROM trireme_torch)
  add_executable(${target} $<TARGET_OBJECTS:${target}_code>)
  target_link_libraries(${target} PRIVATE ${target}_code)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
endfunction()

# trireme_script_test(NAME COMMAND word...): a test that runs a command; exit status 0 means success, 77 that this machine lacks
# what it needs.
function(trireme_script_test name)
  cmake_parse_arguments(arg "" "" "COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TRIREME_TEST_SECONDS} SKIP_RETURN_CODE 77 ENVIRONMENT "${TRIREME_TEST_ENVIRONMENT}")
endfunction()
