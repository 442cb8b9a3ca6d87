# Functions for tests/.

set(EBB_TEST_TIMEOUT_S 300) # of a whole program; the slowest took 160 s beside another, under sanitizers

# These begin first: so the end does not wait for one of them.  What takes more than 20 s under AddressSanitizer.
set(EBB_LONG_TESTS test_property_planner test_cuda_fake_training test_property test_train cli_test_commands
    test_op_cases test_cuda_ops test_cuda_fake cuda_races)

# A Criterion test whose child leaks, or fails in its .fini, still exits with 0: what it printed
# decides as well.
set(EBB_TEST_FAILURE_TEXT "Sanitizer|Assertion Failed|runtime error:")

function(ebb_test_properties name label)
    set_tests_properties(${name} PROPERTIES
        LABELS "${label}"
        TIMEOUT ${EBB_TEST_TIMEOUT_S}
        FAIL_REGULAR_EXPRESSION "${EBB_TEST_FAILURE_TEXT}"
        ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0;UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=halt_on_error=1")
    if("${name}" IN_LIST EBB_LONG_TESTS)
        set_tests_properties(${name} PROPERTIES COST 1)
    endif()
endfunction()

# ebb_add_criterion_program(name files...): an executable with Criterion and ebb's internals.
function(ebb_add_criterion_program name)
    add_executable(${name} ${ARGN})
    target_include_directories(${name} SYSTEM PRIVATE "${CRITERION_INCLUDE}")
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    # Criterion's assertions take a compiler that optimises longer than they run.  After the build type's -O3 or -O1.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:C>:-O0>)
    target_compile_definitions(${name} PRIVATE EBB_SHARED_DIR="${EBB_SHARED_DIR}")
    target_link_libraries(${name} PRIVATE ebb_test_support ebb_static "${CRITERION_LIBRARY}")
endfunction()

# ebb_add_criterion(test_core label files...): one executable, one CTest entry.
function(ebb_add_criterion name label)
    ebb_add_criterion_program(${name} ${ARGN})
    add_test(NAME ${name} COMMAND ${name})
    ebb_test_properties(${name} ${label})
endfunction()

# ebb_add_suite(name folder): folder/test_*.c become test_<name>, labelled unit; folder/slow_*.c
# become slow_<name>, labelled slow.  Other *.c there are helpers of both.
function(ebb_add_suite name folder)
    file(GLOB helpers CONFIGURE_DEPENDS "${folder}/*.c")
    list(FILTER helpers EXCLUDE REGEX "/(test|slow)_[^/]*$")
    foreach(kind test slow)
        file(GLOB files CONFIGURE_DEPENDS "${folder}/${kind}_*.c")
        if(files AND kind STREQUAL "test")
            ebb_add_criterion(test_${name} unit ${files} ${helpers})
        elseif(files)
            ebb_add_criterion(slow_${name} slow ${files} ${helpers})
        endif()
    endforeach()
endfunction()

# ebb_add_unit(core): tests/unit/core.
function(ebb_add_unit folder)
    ebb_add_suite(${folder} "${PROJECT_SOURCE_DIR}/tests/unit/${folder}")
endfunction()
