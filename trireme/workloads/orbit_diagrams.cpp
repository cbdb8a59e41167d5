#include "trireme/workloads/orbit_diagrams.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/files/little_endian.hpp"
#include "trireme/files/safetensors_header.hpp"
#include "trireme/workloads/shuffle.hpp"

namespace trireme::workloads {
namespace {

constexpr std::int64_t kClasses = std::ssize(kOrbitRates);
constexpr double kNoise = 0.05;  // Note [Diagrams without GUDHI]

std::string name_of(Part part) { return part == Part::train ? "train" : "validation"; }

/// Stored as [classes, orbits, pairs]. Persistences instead of deaths: the rounding of a late birth and death to fp16
/// could hide a short life.
class DiagramFile {
 public:
  DiagramFile() {
    const std::span<const std::byte> file = orbit_diagram_file();
    const auto header_bytes = files::little_endian_at<std::uint64_t>(file.data());
    const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
    data_ = file.subspan(8 + header_bytes);
    const files::SafetensorsHeader header(json, data_.size(), "orbit_diagrams.safetensors");
    birth_ = tensor(header, "birth", at::kHalf).to(at::kDouble);
    persistence_ = tensor(header, "persistence", at::kHalf).to(at::kDouble);
    dim_ = tensor(header, "dim", at::kByte).to(at::kLong);
  }

  /// The orbits of a part: the first four fifths of a class, or the others.
  std::int64_t count(Part part) const {
    const std::int64_t train = birth_.size(1) * 4 / 5;
    return part == Part::train ? train : birth_.size(1) - train;
  }

  Diagram diagram(std::int64_t label, std::int64_t index, Part part) const {
    const std::int64_t at = index + (part == Part::train ? 0 : count(Part::train));
    const auto birth = birth_.accessor<double, 3>()[label][at];
    const auto persistence = persistence_.accessor<double, 3>()[label][at];
    const auto dim = dim_.accessor<std::int64_t, 3>()[label][at];
    Diagram out;
    for (std::int64_t i = 0; i < birth_.size(2); ++i)
      if (persistence[i] > 0) out.push_back({birth[i], birth[i] + persistence[i], static_cast<int>(dim[i])});
    return out;
  }

 private:
  at::Tensor tensor(const files::SafetensorsHeader& header, std::string_view name, at::ScalarType dtype) const {
    const auto index = header.find(name);
    require(index.has_value(), "orbit_diagrams.safetensors has no tensor ", name);
    const files::SafetensorsEntry entry = header.entry(*index);
    at::Tensor out = at::empty(entry.shape, dtype);
    require(out.dim() == 3 && out.size(0) == kClasses && out.nbytes() == entry.end - entry.begin,
            "orbit_diagrams.safetensors: ", name, " has the shape ", out.sizes());
    std::copy_n(data_.data() + entry.begin, out.nbytes(), static_cast<std::byte*>(out.data_ptr()));
    return out;
  }

  std::span<const std::byte> data_;
  at::Tensor birth_, persistence_, dim_;
};

/// The noise depends on the orbit and the number of the copy, not on how many samples were asked for.
Diagram noisy(Diagram diagram, const RandomStream& random) {
  for (std::size_t i = 0; i < diagram.size(); ++i) {
    PersistencePair& pair = diagram[i];
    const double reach = kNoise * pair.persistence();
    if (pair.dim > 0) pair.birth = std::max(0.0, pair.birth + reach * (2 * random.uniform(2 * i) - 1));
    pair.death += reach * (2 * random.uniform(2 * i + 1) - 1);
  }
  return diagram;
}

}  // namespace

at::Tensor diagram_matrix(const Diagram& diagram) {
  const auto feature = [](double radius, const Standard& standard) {
    return static_cast<float>((radius * std::sqrt(kOrbitPoints) - standard.center) / standard.spread);
  };
  at::Tensor out = at::zeros({kDiagramPairs, kDiagramFeatures}, at::kFloat);
  auto rows = out.accessor<float, 2>();
  const auto pairs = std::min(kDiagramPairs, static_cast<std::int64_t>(diagram.size()));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const PersistencePair& pair = diagram[static_cast<std::size_t>(i)];
    rows[i][0] = feature(pair.birth, pair.dim == 0 ? kComponentBirth : kLoopBirth);
    rows[i][1] = feature(pair.death, pair.dim == 0 ? kComponentDeath : kLoopDeath);
    rows[i][2 + pair.dim] = 1;
  }
  return out;
}

std::vector<Diagram> stored_diagrams(int label, Part part) {
  const DiagramFile file;
  std::vector<Diagram> out;
  for (std::int64_t i = 0; i < file.count(part); ++i) out.push_back(file.diagram(label, i, part));
  return out;
}

LabelledDiagrams orbit_diagrams(Part part, std::int64_t samples, std::uint64_t seed) {
  require<ConfigError>(samples > 0, "orbit diagrams: samples = ", samples, ", at least one is needed");
  const DiagramFile file;
  const auto sample = [&](std::int64_t label, std::int64_t index) -> Diagram {
    if (has_gudhi()) return alpha_diagram(random_orbit(static_cast<int>(label), index, seed, name_of(part)).points);
    const std::int64_t stored = index % file.count(part), copy = index / file.count(part);
    Diagram diagram = file.diagram(label, stored, part);
    if (copy == 0) return diagram;
    return noisy(std::move(diagram), {seed, text("diagram ", name_of(part), " ", label, " ", stored, " ", copy)});
  };

  LabelledDiagrams out{at::empty({samples, kDiagramPairs, kDiagramFeatures}, at::kFloat),
                       at::empty({samples}, at::kLong)};
  const std::vector<std::int64_t> places = random_order(samples, seed, "diagram order " + name_of(part));
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    out.x[place].copy_(diagram_matrix(sample(i % kClasses, i / kClasses)));
    out.y[place] = i % kClasses;
  }
  return out;
}

}  // namespace trireme::workloads
