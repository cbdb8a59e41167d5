# cmake -DINPUT=file -DOUTPUT=source.cpp -P embed.cmake: writes the source of orbit_diagram_file() (orbit_diagrams.cpp).
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Made from ${INPUT} by embed.cmake.
#include \"trireme/workloads/orbit_diagrams.hpp\"

namespace {
constexpr unsigned char kBytes[] = {
${bytes}};
}

std::span<const std::byte> trireme::workloads::orbit_diagram_file() { return std::as_bytes(std::span(kBytes)); }
")
