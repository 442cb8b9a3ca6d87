# cmake -DOUT=page_parts.c "-DPARTS=name=file|file;..." [-DHEADER=h -DTYPE=t -DPREFIX=p] -P EbbEmbed.cmake:
# files as PREFIXname in C, of the type {text, bytes} that the header declares; a zero follows the bytes.
# Several files become one text; one that is not there has 0 bytes.
if(NOT HEADER)
    set(HEADER report/page_parts.h)
    set(TYPE ebb__page_part)
    set(PREFIX ebb__page_)
endif()
set(text "/* Made by cmake/EbbEmbed.cmake. */\n#include \"${HEADER}\"\n")
foreach(part IN LISTS PARTS)
    string(REGEX MATCH "^([^=]*)=(.*)$" _ "${part}")
    set(name "${CMAKE_MATCH_1}")
    string(REPLACE "|" ";" files "${CMAKE_MATCH_2}")
    set(hex)
    foreach(file IN LISTS files)
        if(file AND EXISTS "${file}")
            file(READ "${file}" one HEX)
            string(APPEND hex "${one}")
        endif()
    endforeach()
    string(LENGTH "${hex}" digits)
    math(EXPR bytes "${digits} / 2")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND text "\nstatic const unsigned char ${name}_text[] = {${hex}0};\n"
        "extern const ${TYPE} ${PREFIX}${name};\n"
        "const ${TYPE} ${PREFIX}${name} = {${name}_text, ${bytes}};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
