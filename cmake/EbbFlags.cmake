# Compiler flags: target ebb_flags carries them to every object of the project; ebb_internal
# lets the library's folders and the tests see src/, which programs do not.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3")
set(ebb_debug_info -g)
if(EBB_SANITIZE) # functions and lines are what it tells; for a debugger there is the preset dev
    set(ebb_debug_info -g1)
endif()
set(CMAKE_C_FLAGS_DEBUG "-O1 ${ebb_debug_info}")
# C++ is in the tests only, and compiled for longer than it runs.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 ${ebb_debug_info}")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

add_library(ebb_flags INTERFACE)
target_compile_definitions(ebb_flags INTERFACE _GNU_SOURCE EBB_CHECKS=${EBB_CHECKS})
target_compile_options(ebb_flags INTERFACE
    -Wall -Wextra -Wshadow -Wpointer-arith -Wvla
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>
    # Without these two, loops with exp or a comparison do not vectorise.  -ffast-math stays off: it
    # would break the handling of NaN and infinity.
    -fno-math-errno -fno-trapping-math)
target_include_directories(ebb_flags INTERFACE "${PROJECT_SOURCE_DIR}/include")

# Fields that an initialiser with names leaves out are zero, and meant so; gcc knows.  clang 14 does not
# vectorise some loops that gcc does.
target_compile_options(ebb_flags INTERFACE
    $<$<C_COMPILER_ID:Clang>:-Wno-missing-field-initializers;-Wno-pass-failed>)
# At -O1 gcc warns of paths that it does not follow far enough; -O3 does follow them.
target_compile_options(ebb_flags INTERFACE
    $<$<AND:$<C_COMPILER_ID:GNU>,$<CONFIG:Debug>>:-Wno-maybe-uninitialized>)
if(EBB_WERROR)
    target_compile_options(ebb_flags INTERFACE -Werror)
endif()
if(EBB_MARCH)
    target_compile_options(ebb_flags INTERFACE -march=${EBB_MARCH})
endif()
if(EBB_SANITIZE)
    target_compile_options(ebb_flags INTERFACE
        -fsanitize=${EBB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(ebb_flags INTERFACE -fsanitize=${EBB_SANITIZE})
endif()
if(EBB_LTO)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

add_library(ebb_internal INTERFACE)
target_link_libraries(ebb_internal INTERFACE ebb_flags)
target_include_directories(ebb_internal INTERFACE "${PROJECT_SOURCE_DIR}/src")
