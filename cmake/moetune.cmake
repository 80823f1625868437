# The few build verbs of this project. Every list of files is explicit.

add_library(moetune_options INTERFACE)
target_compile_features(moetune_options INTERFACE cxx_std_20)
target_include_directories(moetune_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(moetune_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow)
# GCC 12 warns of an impossible overlap inside std::string's own operator+ at -O3 (its bug 105651).
target_compile_options(moetune_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# A JSON value never turns into something else unasked.
target_compile_definitions(moetune_options INTERFACE JSON_USE_IMPLICIT_CONVERSIONS=0)
if(MOETUNE_WERROR)
  target_compile_options(moetune_options INTERFACE -Werror)
endif()
if(MOETUNE_SANITIZE)
  target_compile_options(moetune_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(moetune_options INTERFACE -fsanitize=address,undefined)
endif()
if(MOETUNE_FUZZERS)
  target_compile_options(moetune_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(MOETUNE_PORTABLE)
  target_link_options(moetune_options INTERFACE -static-libstdc++ -static-libgcc)
endif()

# moetune_library(NAME SOURCES a.cpp … HEADERS a.h … LINK target …): the library moetune_NAME of the folder src/NAME.
function(moetune_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK;PRIVATE_LINK" ${ARGN})
  add_library(moetune_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(moetune_${name} PUBLIC moetune_options ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  foreach(header ${ARG_HEADERS})
    set_property(GLOBAL APPEND PROPERTY moetune_headers ${name}/${header})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY moetune_libraries moetune_${name})
endfunction()

# Code that no time is spent in compiles faster with less optimisation: it is half of a release build.
add_library(moetune_cold INTERFACE)
target_compile_options(moetune_cold INTERFACE $<$<CONFIG:Release>:-O1>)

# moetune_test(NAME SOURCES … LINK …): one GoogleTest executable, registered with ctest; nothing without MOETUNE_TESTS.
function(moetune_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT MOETUNE_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE moetune_options moetune_cold ${ARG_LINK} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE MOETUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

option(MOETUNE_GPU_TESTS "Register the tests that need a GPU with ctest" OFF)

# moetune_gpu_test(NAME …): as moetune_test, of what needs a GPU. Always built; registered, with the label gpu, only where MOETUNE_GPU_TESTS is on.
function(moetune_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(MOETUNE_GPU_TESTS)
    moetune_test(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} LABELS gpu TIMEOUT 600)
  elseif(MOETUNE_TESTS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE moetune_options moetune_cold ${ARG_LINK} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name} PRIVATE MOETUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  endif()
endfunction()

# moetune_needs_nvrtc(TEST): ctest runs it with the NVRTC of scripts/install_nvrtc, where that has been run.
function(moetune_needs_nvrtc name)
  if(TEST ${name} AND EXISTS ${PROJECT_SOURCE_DIR}/build/nvrtc/libnvrtc.so.13)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT MOETUNE_NVRTC=${PROJECT_SOURCE_DIR}/build/nvrtc)
  endif()
endfunction()

# moetune_embed(TARGET SYMBOL FILES …): compiles the files' text into TARGET as `std::span<const moetune::EmbeddedFile> moetune::SYMBOL()`,
# named by their path relative to the project. See base/embedded.h.
function(moetune_embed target symbol)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.list)
  string(REPLACE ";" "\n" lines "${ARG_FILES}")
  file(GENERATE OUTPUT ${list} CONTENT "${lines}\n")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D LIST=${list} -D SYMBOL=${symbol} -D OUTPUT=${output}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARG_FILES} ${list} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# moetune_revision(TARGET SYMBOL FILES …): compiles a hash of those files into TARGET as the std::string_view moetune::SYMBOL.
function(moetune_revision target symbol)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.list)
  string(REPLACE ";" "\n" lines "${ARG_FILES}")
  file(GENERATE OUTPUT ${list} CONTENT "${lines}\n")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D LIST=${list} -D SYMBOL=${symbol} -D OUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/revision.cmake
    DEPENDS ${ARG_FILES} ${list} ${PROJECT_SOURCE_DIR}/cmake/revision.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# Every header compiles alone and twice. Where there is a source file of its name, that one includes it first.
function(moetune_header_checks)
  get_property(headers GLOBAL PROPERTY moetune_headers)
  get_property(libraries GLOBAL PROPERTY moetune_libraries)
  set(sources)
  foreach(header ${headers})
    string(REGEX REPLACE "[.]h$" ".cpp" own ${header})
    if(EXISTS ${PROJECT_SOURCE_DIR}/src/${own})
      continue()
    endif()
    string(REPLACE "/" "__" stem ${header})
    set(source ${PROJECT_BINARY_DIR}/header_checks/${stem}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(header_checks OBJECT ${sources})
  target_link_libraries(header_checks PRIVATE ${libraries})
  target_compile_options(header_checks PRIVATE -O0)
endfunction()
