// make_orbit_diagrams FILE: writes data/orbit_diagrams.safetensors, Note [Diagrams without GUDHI].
#include <exception>
#include <fstream>
#include <iostream>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/files/safetensors_write.hpp"
#include "trireme/workloads/orbit_diagrams.hpp"

namespace trireme::workloads {
namespace {

constexpr std::int64_t kOrbits = 100;
constexpr std::uint64_t kSeed = 5000;

void write(const std::string& path) {
  constexpr std::int64_t kClasses = std::ssize(kOrbitRates);
  const at::Tensor birth = at::zeros({kClasses, kOrbits, kDiagramPairs}, at::kHalf), persistence = birth.clone();
  const at::Tensor dim = at::zeros(birth.sizes(), at::kByte);
  auto births = birth.accessor<at::Half, 3>(), persistences = persistence.accessor<at::Half, 3>();
  auto dims = dim.accessor<std::uint8_t, 3>();
  for (std::int64_t c = 0; c < kClasses; ++c)
    for (std::int64_t n = 0; n < kOrbits; ++n) {
      const Diagram diagram = alpha_diagram(random_orbit(static_cast<int>(c), n, kSeed, "file").points);
      for (std::int64_t i = 0; i < std::min(kDiagramPairs, std::ssize(diagram)); ++i) {
        const PersistencePair& pair = diagram[static_cast<std::size_t>(i)];
        births[c][n][i] = static_cast<at::Half>(static_cast<float>(pair.birth));
        persistences[c][n][i] = static_cast<at::Half>(static_cast<float>(pair.persistence()));
        dims[c][n][i] = static_cast<std::uint8_t>(pair.dim);
      }
    }

  const std::vector<std::int64_t> shape = birth.sizes().vec();
  const std::vector<files::SafetensorsTensor> tensors = {{"birth", files::SafetensorsDtype::F16, shape},
                                                         {"persistence", files::SafetensorsDtype::F16, shape},
                                                         {"dim", files::SafetensorsDtype::U8, shape}};
  std::ofstream out(path, std::ios::binary);
  out << files::safetensors_header(
      tensors, {{"made_by", "make_orbit_diagrams"}, {"points", text(kOrbitPoints)}, {"seed", text(kSeed)}}, path);
  for (const at::Tensor& tensor : {birth, persistence, dim})
    out.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  require<DataError>(static_cast<bool>(out.flush()), path, " could not be written");
}

}  // namespace
}  // namespace trireme::workloads

int main(int argc, char** argv) try {
  trireme::require<trireme::ConfigError>(argc == 2, "usage: make_orbit_diagrams FILE");
  trireme::workloads::write(argv[1]);
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
