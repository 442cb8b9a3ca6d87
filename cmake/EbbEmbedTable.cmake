# cmake -DOUT=profiles.c -DHEADER=device/profile.h -DTYPE=ebb__profile_text -DTABLE=ebb__profile_texts
#       "-DFILES=a.json|b.json" -P EbbEmbedTable.cmake: files as rows {name, text, bytes} of a table in C, and
# their number as ebb__n_... of the table's name.
string(REPLACE "|" ";" FILES "${FILES}")
set(texts)
set(rows)
set(n 0)
foreach(file IN LISTS FILES)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" hex HEX)
    string(LENGTH "${hex}" digits)
    math(EXPR bytes "${digits} / 2")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND texts "static const unsigned char text_${n}[] = {${hex}0};\n")
    string(APPEND rows "    {\"${name}\", text_${n}, ${bytes}},\n")
    math(EXPR n "${n} + 1")
endforeach()
string(REGEX REPLACE "^ebb__" "ebb__n_" count "${TABLE}")
file(WRITE "${OUT}" "/* Made by cmake/EbbEmbedTable.cmake. */\n#include \"${HEADER}\"\n\n${texts}\n"
    "const ${TYPE} ${TABLE}[] = {\n${rows}};\nconst int ${count} = ${n};\n")
