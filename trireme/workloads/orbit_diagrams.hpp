#pragma once
// The ORBIT5K data as a transformer reads it: one persistence diagram per orbit, as a tensor of points.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/workloads/alpha_diagram.hpp"

namespace trireme::workloads {

// Note [Diagrams without GUDHI]
// data/orbit_diagrams.safetensors has the diagrams of 100 orbits per class, made by make_orbit_diagrams with GUDHI: the
// 64 most persistent pairs of each, in fp16. The first 80 are for training, the last 20 for validation. Whoever asks
// for more gets each of them again with noise: birth and death each move by up to 5 % of the pair's persistence, births
// of components (always 0) stay. Such copies are correlated: they show what a step costs and that a model learns, not
// how well it would do on 5,000 orbits. A build with GUDHI computes the diagram of as many orbits as are asked for.

inline constexpr std::int64_t kDiagramPairs = 64;

/// Of a point: birth and death, standardised; then 1, 0 for a component and 0, 1 for a loop.
inline constexpr std::int64_t kDiagramFeatures = 4;

/// A birth or death in units of the mean spacing of the points of an orbit, 1 / sqrt(1000), becomes (radius - center) /
/// spread: about the median and the distance of the quartiles in the stored diagrams. Without this, classes differ by a
/// small part of each feature, and a model needs several epochs before its loss falls at all.
struct Standard {
  double center = 0, spread = 1;
};
inline constexpr Standard kComponentBirth = {0, 1}, kComponentDeath = {0.65, 0.1};
inline constexpr Standard kLoopBirth = {0.65, 0.15}, kLoopDeath = {1.3, 0.3};

enum class Part { train, validation };

struct LabelledDiagrams {
  at::Tensor x;  // [samples, kDiagramPairs, kDiagramFeatures] fp32; rows of zeros at the end if there are fewer pairs
  at::Tensor y;  // [samples] int64
};

/// Classes have the same number of samples, to within one, in an order that depends on the seed. The two parts have no
/// orbit in common.
LabelledDiagrams orbit_diagrams(Part part, std::int64_t samples, std::uint64_t seed);

/// The first kDiagramPairs pairs as a matrix.
at::Tensor diagram_matrix(const Diagram& diagram);

/// A class of the stored diagrams, as they are.
std::vector<Diagram> stored_diagrams(int label, Part part);

/// The bytes of data/orbit_diagrams.safetensors, which are part of the program (embed.cmake).
std::span<const std::byte> orbit_diagram_file();

}  // namespace trireme::workloads
