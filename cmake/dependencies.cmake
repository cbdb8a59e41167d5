# External dependencies: Debian packages (listed in tools/setup) and libtorch. No downloads, no vendored source.
find_package(tomlplusplus REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
if(TRIREME_WITH_ZSTD)
  pkg_check_modules(ZSTD IMPORTED_TARGET libzstd)
endif()
if(NOT TARGET PkgConfig::ZSTD)
  message(STATUS "libzstd: not used, so .zst files are refused")
endif()

if(TRIREME_WITH_TORCH)
  # The same search as tools/setup, unless the caller named a torch through CMAKE_PREFIX_PATH or Torch_DIR.
  if(NOT Torch_DIR)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/find_torch OUTPUT_VARIABLE torch_folder ERROR_VARIABLE torch_error
                    OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing)
    if(NOT torch_missing)
      list(APPEND CMAKE_PREFIX_PATH ${torch_folder}/share/cmake)
    endif()
  endif()
  if(NOT TRIREME_WITH_CUDA STREQUAL "OFF" AND NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    include(${CMAKE_CURRENT_LIST_DIR}/gpu_architectures.cmake)
    trireme_gpu_architectures(TORCH_CUDA_ARCH_LIST)
  endif()
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR "libtorch was not found. ${torch_error}\nRun tools/setup, or configure with -DTRIREME_WITH_TORCH=OFF.")
  endif()
  message(STATUS "libtorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")
  # A project that includes this one by add_subdirectory links torch through it: torch's targets must be visible there too.
  get_directory_property(imported IMPORTED_TARGETS)
  set_target_properties(${imported} PROPERTIES IMPORTED_GLOBAL TRUE)

  if(NOT TRIREME_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TRIREME_WITH_CUDA=${TRIREME_WITH_CUDA}: AUTO, ON or OFF")
  endif()
  set(TRIREME_CUDA ${TRIREME_WITH_CUDA})
  if(TRIREME_WITH_CUDA STREQUAL "AUTO")
    set(TRIREME_CUDA OFF)
    if(TARGET torch_cuda)
      set(TRIREME_CUDA ON)
    endif()
  endif()
  message(STATUS "CUDA: ${TRIREME_CUDA}")
  if(TRIREME_CUDA AND NOT TARGET torch_cuda)
    message(FATAL_ERROR "TRIREME_WITH_CUDA=ON, but the torch in ${TORCH_INSTALL_PREFIX} was built without CUDA")
  endif()

  # By their targets, not by their paths: the installed package finds the torch that is there.
  list(TRANSFORM TORCH_LIBRARIES REPLACE ".*/lib(c10|c10_cuda)\\.so$" "\\1")
  # The only target that links torch directly: headers as SYSTEM, and one precompiled header that all users share.
  add_library(trireme_torch STATIC ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
  set_target_properties(trireme_torch PROPERTIES EXPORT_NAME torch)
  # stdc++ first: libtorch exports the std::filesystem of the compiler it was built with, and if that copy is found first,
  # remove_all() jumps to address 0 (StandardLibrary.ComesBeforeTheCopyInsideLibtorch).
  target_link_libraries(trireme_torch PUBLIC stdc++ ${TORCH_LIBRARIES})
  # Exactly the warning flags of its users: -Wpedantic changes predefined macros, and a precompiled header without it is not used.
  target_compile_options(trireme_torch PRIVATE ${TRIREME_WARNINGS})
  # Not <torch/torch.h>: g++ instantiates the pending templates of a precompiled header again in every file, and for all of torch that
  # takes 12 s per file. Most files include these headers anyway.
  set(TRIREME_TORCH_HEADERS <algorithm> <functional> <map> <optional> <string> <vector> <ATen/core/Tensor.h>
                            <torch/csrc/autograd/custom_function.h> <torch/nn/module.h>)
  target_precompile_headers(trireme_torch PRIVATE ${TRIREME_TORCH_HEADERS})
  set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES trireme_torch)
endif()

# trireme_test_library(TARGET [LINK target...] [HEADERS header...]): linked by test programs; holds their shared precompiled header.
function(trireme_test_library target)
  cmake_parse_arguments(arg "" "" "LINK;HEADERS" ${ARGN})
  add_library(${target} STATIC ${PROJECT_SOURCE_DIR}/cmake/test_pch.cpp)
  target_link_libraries(${target} PUBLIC ${arg_LINK} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
  # Same as in the programs that use its header: otherwise CMake compiles those with -fPIE and this library with -fPIC.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # -O0: tests are compiled more often than they are run; the code under test is optimised.
  target_compile_options(${target} PUBLIC ${TRIREME_WARNINGS} ${TRIREME_COLD})
  target_compile_definitions(${target} PUBLIC TRIREME_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS} <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h> <fstream> <map> <sstream>
                            <string> <vector>)
endfunction()

if(TRIREME_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
  trireme_test_library(trireme_test_main)
  if(TRIREME_WITH_TORCH)
    trireme_test_library(trireme_torch_test_main LINK trireme_torch HEADERS ${TRIREME_TORCH_HEADERS})
  endif()
endif()
