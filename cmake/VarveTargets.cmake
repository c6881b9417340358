# What every target of the house has in common: warnings, sanitizers, how libraries and tests are declared.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)

add_library(varve_warnings INTERFACE)
add_library(varve::warnings ALIAS varve_warnings)
target_compile_options(varve_warnings INTERFACE -Wall -Wextra -Wpedantic -Werror)

# Half of a compilation is the reading of headers: several sources of a target are compiled together (presets but debug). Names in anonymous namespaces of one
# target therefore differ. A file that a unity file includes looks to the compiler like a header with types of an anonymous namespace.
if(CMAKE_UNITY_BUILD)
  # A file costs half as much in 24 as in 8. Sanitizers take too much memory for that.
  if(NOT VARVE_SANITIZE)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
  endif()
  target_compile_options(varve_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# A compiler that collects no garbage of its own below 1.5 GB is done an eighth earlier; JOBS in the Makefile leaves 2 GiB to each. Sanitizers take more by themselves.
if(NOT VARVE_SANITIZE)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1500000>)
endif()

if(VARVE_SANITIZE)
  add_compile_options(-fsanitize=${VARVE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${VARVE_SANITIZE})
endif()
if(VARVE_FUZZ)
  # Coverage by line in the same programs: another build of everything would cost more than the counting. It is written only where LLVM_PROFILE_FILE is set.
  add_compile_options(-fsanitize=fuzzer-no-link -fprofile-instr-generate=/dev/null -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate=/dev/null)
  add_custom_target(fuzzers)
endif()

# varve_only_waits(TARGET): nothing in it computes for long, so that it is optimized less: a quarter less to compile.
function(varve_only_waits target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# varve_add_library(NAME [WAITS] SOURCES a.cpp b.cpp PUBLIC lib... PRIVATE lib...): target varve_NAME, alias varve::NAME. WAITS: varve_only_waits().
function(varve_add_library name)
  cmake_parse_arguments(ARG "WAITS" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(varve_${name} STATIC ${ARG_SOURCES})
  add_library(varve::${name} ALIAS varve_${name})
  target_include_directories(varve_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(varve_${name} PUBLIC ${ARG_PUBLIC} PRIVATE varve::warnings ${ARG_PRIVATE})
  if(ARG_WAITS)
    varve_only_waits(varve_${name})
  endif()
endfunction()

# varve_ships(TARGET): a program that packages have. The same sources give the same bytes, wherever they lie: a build id is a digest also of debugging information,
# which names that folder and is not shipped.
function(varve_ships target)
  target_link_options(${target} PRIVATE -Wl,--build-id=none)
endfunction()

# What only tests run is built fast: without optimization (but for what computes for long), and by the linker that needs half of the time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold VARVE_HAS_GOLD)
function(varve_is_test_code target computes)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:$<IF:$<BOOL:${computes}>,-O1,-O0>>)
  if(VARVE_HAS_GOLD AND NOT VARVE_SANITIZE)
    target_link_options(${target} PRIVATE -fuse-ld=gold)
  endif()
endfunction()

# varve_add_test(NAME [COMPUTES] a_test.cpp ... LINKS lib...): one GoogleTest program, known to ctest as NAME.
function(varve_add_test name)
  cmake_parse_arguments(ARG "COMPUTES" "" "LINKS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE varve::warnings ${ARG_LINKS} GTest::gmock GTest::gtest_main)
  varve_is_test_code(${name} ${ARG_COMPUTES})
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
endfunction()

# varve_uses_regex(TARGET): GCC 12 warns of std::regex itself where sanitizers add checks.
function(varve_uses_regex target)
  if(VARVE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

# varve_talks_grpc(TEST...): its libraries come without what ThreadSanitizer must see of them: each of their locks would look like a race.
function(varve_talks_grpc)
  if(VARVE_SANITIZE MATCHES thread)
    set_tests_properties(${ARGN} PROPERTIES DISABLED TRUE)
  endif()
endfunction()

# varve_add_fuzz(NAME target.cpp LINKS lib...): with VARVE_FUZZ a libFuzzer program; else a test that replays fuzz/corpus/NAME.
function(varve_add_fuzz name source)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  if(VARVE_FUZZ)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    add_test(NAME ${name} COMMAND ${name} -runs=0 ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  else()
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE varve_fuzz_replay)
    varve_is_test_code(${name} FALSE)
    add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE varve::warnings ${ARG_LINKS})
endfunction()
