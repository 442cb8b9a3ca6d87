# The CUDA plugin, libebb_cuda.so: a module that the library loads by name and nothing links.
#
#   EBB_CUDA_HEADERS  where CUDA's headers are, or empty: its tests need no more, not even nvcc
#   EBB_CUDA_PLUGIN   whether the plugin is built

set(EBB_CUDA_ARCHITECTURES "" CACHE STRING
    "As CMAKE_CUDA_ARCHITECTURES; empty: machine code for 8.0 and 9.0, and PTX for what comes after")
set(EBB_CUDA_HEADERS "")
set(EBB_CUDA_PLUGIN OFF)

if(NOT EBB_CUDA STREQUAL "OFF")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(required REQUIRED)
        if(EBB_CUDA STREQUAL "AUTO")
            set(required QUIET)
        endif()
        find_package(CUDAToolkit 12.5 ${required}) # cudaGetDriverEntryPointByVersion()
        if(CUDAToolkit_FOUND)
            list(GET CUDAToolkit_INCLUDE_DIRS 0 EBB_CUDA_HEADERS)
        else()
            message(STATUS "CUDA: the toolkit is not found, or older than 12.5, so there will be no libebb_cuda.so "
                           "(EBB_CUDA=ON makes this an error)")
        endif()
    elseif(EBB_CUDA STREQUAL "ON")
        message(FATAL_ERROR "EBB_CUDA=ON: nvcc is not found; put it on PATH or set CMAKE_CUDA_COMPILER")
    else()
        message(STATUS "CUDA: nvcc is not found, so there will be no libebb_cuda.so (EBB_CUDA=ON makes this an error)")
    endif()
endif()
# Under a sanitizer the plugin's files are tested, emulated; the plugin itself would need a sanitized program.
if(EBB_CUDA_HEADERS AND NOT EBB_SANITIZE)
    set(EBB_CUDA_PLUGIN ON)
endif()

if(EBB_CUDA_PLUGIN)
    set(CMAKE_CUDA_ARCHITECTURES "${EBB_CUDA_ARCHITECTURES}")
    if(NOT EBB_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES OFF) # cannot say what ebb_cuda_flags does below
    endif()
    enable_language(CXX) # links the plugin
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    # The host's code, which launches; kernels are always optimised in full.
    set(CMAKE_CUDA_FLAGS_RELEASE "-O1")
    set(CMAKE_CUDA_FLAGS_DEBUG "-O1")
    add_library(ebb_cuda_flags INTERFACE)
    # Local memory and spilled registers are mistakes in these kernels, so both are errors.  Code for doubles
    # in kernels for f32 is one too, but ptxas cannot tell it from that in kernels for f64:
    # tests/cuda/doubles.py does, on the PTX, which is not compressed for its sake.
    target_compile_options(ebb_cuda_flags INTERFACE
        -Xptxas=-warn-lmem-usage,-warn-spills,-Werror --no-compress -Xcompiler=-Wall)
    # One PTX, for 8.0: kernels use nothing that came later, and a second costs a third of the time to compile.
    if(NOT EBB_CUDA_ARCHITECTURES)
        target_compile_options(ebb_cuda_flags INTERFACE --generate-code=arch=compute_80,code=[compute_80,sm_80,sm_90])
    endif()
    if(EBB_WERROR)
        target_compile_options(ebb_cuda_flags INTERFACE -Werror=all-warnings -Xcompiler=-Werror)
    endif()
    target_compile_definitions(ebb_cuda_flags INTERFACE _GNU_SOURCE)
    target_include_directories(ebb_cuda_flags INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
endif()
