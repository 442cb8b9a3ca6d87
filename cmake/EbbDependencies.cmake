# Libraries that ebb stands on: target ebb_deps.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

# ebb_find(NAME header library hint): EBB_<NAME>_INCLUDE and EBB_<NAME>_LIBRARY, or an error that
# names the package to install.
function(ebb_find name header library package)
    find_path(EBB_${name}_INCLUDE ${header} PATH_SUFFIXES ${ARGN})
    find_library(EBB_${name}_LIBRARY ${library} PATH_SUFFIXES ${ARGN})
    mark_as_advanced(EBB_${name}_INCLUDE EBB_${name}_LIBRARY)
    if(NOT EBB_${name}_INCLUDE OR NOT EBB_${name}_LIBRARY)
        message(FATAL_ERROR "${header} or lib${library} is missing: install ${package}, "
                            "or run scripts/install-packages.sh")
    endif()
endfunction()

ebb_find(CJSON cjson/cJSON.h cjson libcjson-dev)
# The pthread flavour: the serial one gives wrong products when several threads call it, and the
# OpenMP one brings threads of its own.  The library checks the flavour again when it starts.
ebb_find(OPENBLAS cblas.h openblas libopenblas-pthread-dev openblas-pthread)

add_library(ebb_cjson INTERFACE)
target_include_directories(ebb_cjson SYSTEM INTERFACE "${EBB_CJSON_INCLUDE}")
target_link_libraries(ebb_cjson INTERFACE "${EBB_CJSON_LIBRARY}")

add_library(ebb_deps INTERFACE)
target_include_directories(ebb_deps SYSTEM INTERFACE "${EBB_OPENBLAS_INCLUDE}")
target_link_libraries(ebb_deps INTERFACE
    ebb_cjson "${EBB_OPENBLAS_LIBRARY}" ZLIB::ZLIB Threads::Threads m ${CMAKE_DL_LIBS})
