// Fuzz target: the manifest of a checkpoint. Input: the text of "checkpoint", which gets the right hash, without which
// nothing else would be reached.
#include <cstdint>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/manifest.hpp"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(bytes), size);
  const std::string hash = str(files::xxh3(std::as_bytes(std::span(body))));
  try {
    const std::string json = text("{\"xxh3\": \"", hash, "\",\n\"checkpoint\": ", body, "}\n");
    const checkpoint::Manifest manifest = checkpoint::parse_manifest(json, "x");
    require(checkpoint::parse_manifest(to_json(manifest), "x") == manifest, "it is not read back as it was written");
  } catch (const CheckpointError&) {
  } catch (const SecurityError&) {
  }
  return 0;
}
