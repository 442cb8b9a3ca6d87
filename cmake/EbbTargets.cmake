# Functions that the folders' CMakeLists.txt call.

# ebb_add_folder(core mem.c status.c ...): the objects of one source folder.
function(ebb_add_folder folder)
    add_library(ebb_${folder} OBJECT ${ARGN})
    target_link_libraries(ebb_${folder} PRIVATE ebb_internal ebb_deps)
    set_property(GLOBAL APPEND PROPERTY EBB_OBJECT_LIBRARIES ebb_${folder})
endfunction()

# The shared library that users link, and a static archive of the same objects for the tests, which
# call internals too.
function(ebb_add_libraries)
    get_property(folders GLOBAL PROPERTY EBB_OBJECT_LIBRARIES)
    set(objects)
    foreach(folder IN LISTS folders)
        list(APPEND objects $<TARGET_OBJECTS:${folder}>)
    endforeach()

    add_library(ebb SHARED ${objects})
    set_target_properties(ebb PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)
    target_link_libraries(ebb PRIVATE ebb_flags ebb_deps)
    if(NOT EBB_SANITIZE) # a function that is missing fails here, not where a user links
        target_link_options(ebb PRIVATE LINKER:-z,defs)
    endif()
    target_include_directories(ebb INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    add_library(ebb::ebb ALIAS ebb)

    add_library(ebb_static STATIC ${objects})
    set_target_properties(ebb_static PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(ebb_static PUBLIC ebb_internal ebb_deps)
endfunction()

# ebb_add_program(main.c ...): the command `ebb`.  It sees the public headers only, and cJSON to
# print with.
function(ebb_add_program)
    add_executable(ebb_program ${ARGN})
    set_target_properties(ebb_program PROPERTIES OUTPUT_NAME ebb)
    target_link_libraries(ebb_program PRIVATE ebb_flags ebb ebb_cjson m)
endfunction()
