#include "trireme/workloads/orbit_diagrams.hpp"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::workloads {
namespace {

TEST(AlphaDiagram, OfATriangle) {
  const Orbit triangle = {{0, 0}, {1, 0}, {0.5, std::sqrt(0.75)}};
  if (!has_gudhi()) {
    EXPECT_THAT(message_of<ConfigError>([&] { alpha_diagram(triangle); }), testing::HasSubstr("TRIREME_GUDHI=ON"));
    return;
  }
  // Discs of radius 1/2 touch: two components merge into the third, and a loop appears, which the circumcircle fills.
  const Diagram diagram = alpha_diagram(triangle);
  ASSERT_EQ(diagram.size(), 3U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(diagram[static_cast<std::size_t>(i)].dim, 0);
    EXPECT_EQ(diagram[static_cast<std::size_t>(i)].birth, 0);
    EXPECT_NEAR(diagram[static_cast<std::size_t>(i)].death, 0.5, 1e-9);
  }
  EXPECT_EQ(diagram[2].dim, 1);
  EXPECT_NEAR(diagram[2].birth, 0.5, 1e-9);
  EXPECT_NEAR(diagram[2].death, 1 / std::sqrt(3.0), 1e-9);
}

TEST(StoredDiagrams, ArePlausible) {
  for (int label = 0; label < 5; ++label) {
    EXPECT_EQ(stored_diagrams(label, Part::train).size(), 80U);
    EXPECT_EQ(stored_diagrams(label, Part::validation).size(), 20U);
    int loops = 0;
    for (const Diagram& diagram : stored_diagrams(label, Part::train)) {
      EXPECT_EQ(diagram.size(), static_cast<std::size_t>(kDiagramPairs));
      for (std::size_t i = 0; i < diagram.size(); ++i) {
        const PersistencePair& pair = diagram[i];
        ASSERT_LT(pair.birth, pair.death);
        ASSERT_LT(pair.death, 0.5);  // discs of this radius cover the unit square
        ASSERT_TRUE(pair.dim == 0 || pair.dim == 1);
        if (pair.dim == 0) {
          ASSERT_EQ(pair.birth, 0);
        }
        if (i > 0) {
          ASSERT_LE(pair.persistence(), diagram[i - 1].persistence() + 1e-15);
        }
        loops += pair.dim;
      }
    }
    EXPECT_GT(loops, 0);
  }
}

// The file was made from orbits of this generator: its first pairs are found again where GUDHI is there.
TEST(StoredDiagrams, AreThoseOfTheGenerator) {
  if (!has_gudhi()) return;
  for (int label = 0; label < 5; ++label) {
    const Diagram stored = stored_diagrams(label, Part::train)[3];
    const Diagram computed = alpha_diagram(random_orbit(label, 3, 5000, "file").points);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      EXPECT_EQ(stored[i].dim, computed[i].dim);
      EXPECT_NEAR(stored[i].death, computed[i].death, 1e-3 * computed[i].death);
    }
  }
}

TEST(DiagramMatrix, StandardisesAndPads) {
  const double unit = 1 / std::sqrt(1000.0);
  const at::Tensor x = diagram_matrix({{0, 0.85 * unit, 0}, {0.8 * unit, 1.9 * unit, 1}});
  ASSERT_EQ(x.sizes(), (std::vector<std::int64_t>{kDiagramPairs, kDiagramFeatures}));
  EXPECT_TRUE(at::allclose(x[0], at::tensor({0.F, 2.F, 1.F, 0.F})));
  EXPECT_TRUE(at::allclose(x[1], at::tensor({1.F, 2.F, 0.F, 1.F})));
  EXPECT_EQ(x.slice(0, 2).abs().max().item<float>(), 0);
  EXPECT_EQ(diagram_matrix(Diagram(100, {0, 1, 0})).size(0), kDiagramPairs);  // the rest is left out
}

TEST(OrbitDiagrams, AreBalancedAndAFunctionOfTheSeed) {
  const LabelledDiagrams a = orbit_diagrams(Part::train, 52, 1), b = orbit_diagrams(Part::train, 52, 1);
  EXPECT_TRUE(at::equal(a.x, b.x));
  EXPECT_TRUE(at::equal(a.y, b.y));
  EXPECT_FALSE(at::equal(a.y, orbit_diagrams(Part::train, 52, 2).y));
  const at::Tensor counts = at::bincount(a.y, {}, 5);
  EXPECT_EQ(counts.min().item<int>(), 10);
  EXPECT_EQ(counts.max().item<int>(), 11);
  EXPECT_FALSE(at::equal(a.y, at::arange(52) % 5));  // a sampler that takes every fifth sample must not see one class
  EXPECT_THROW(orbit_diagrams(Part::train, 0, 1), ConfigError);
}

/// Between all samples of x and y. Without matrix products, whose rounding hides that two samples are the same.
at::Tensor distances(const at::Tensor& x, const at::Tensor& y) {
  return at::cdist(x.flatten(1).to(at::kDouble), y.flatten(1).to(at::kDouble), 2, 2);
}

TEST(OrbitDiagrams, PartsHaveNothingInCommon) {
  const at::Tensor train = orbit_diagrams(Part::train, 400, 1).x, held_out = orbit_diagrams(Part::validation, 100, 1).x;
  EXPECT_GT(distances(train, held_out).min().item<double>(), 0.1);
}

// Note [Diagrams without GUDHI]: more samples than the file has are noisy copies, and still diagrams.
TEST(OrbitDiagrams, MoreThanAreStored) {
  const std::int64_t samples = 1000;
  const LabelledDiagrams data = orbit_diagrams(Part::train, samples, 3);
  const at::Tensor is_loop = data.x.select(2, 3) == 1;
  const auto radius = [&](std::int64_t feature, const Standard& component, const Standard& loop) {
    const at::Tensor x = data.x.select(2, feature);
    return at::where(is_loop, x * loop.spread + loop.center, x * component.spread + component.center);
  };
  const at::Tensor birth = radius(0, kComponentBirth, kLoopBirth), death = radius(1, kComponentDeath, kLoopDeath);
  EXPECT_TRUE((birth < death).all().item<bool>());
  EXPECT_GE(birth.min().item<float>(), -1e-6);  // back from fp32
  EXPECT_EQ(birth.masked_fill(is_loop, 0).abs().max().item<float>(), 0);
  const at::Tensor apart = distances(data.x, data.x) + at::eye(samples, at::kDouble) * 1e3;
  EXPECT_GT(apart.min().item<double>(), 1e-3);  // no two samples are the same
  if (has_gudhi()) return;
  // The nearest of the stored ones is of the same class, and near.
  const LabelledDiagrams stored = orbit_diagrams(Part::train, 400, 3);
  const auto [near, which] = distances(data.x, stored.x).min(1);
  EXPECT_TRUE(at::equal(stored.y.index_select(0, which), data.y));
  EXPECT_EQ((near == 0).sum().item<int>(), 400);
}

}  // namespace
}  // namespace trireme::workloads
