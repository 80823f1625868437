#include "cuda/library_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LibrarySearchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("search" + std::to_string(::getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string make(const std::string& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "no library";
    return (root_ / path).string();
  }
  fs::path root_;
};

TEST_F(LibrarySearchTest, TheLoaderThenToolkitsThenPythonPackagesNewestFirst) {
  const auto toolkit12 = make("cuda-12.8/lib64/libnvrtc.so.12");
  const auto toolkit13 = make("cuda-13.0/lib64/libnvrtc.so.13");
  const auto wheel13 = make("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const auto wheel12 = make("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  make("venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12");
  SearchRoots roots;
  roots.toolkits = {(root_ / "cuda-12.8").string(), (root_ / "cuda-13.0").string(), (root_ / "absent").string()};
  roots.python_prefixes = {(root_ / "venv").string()};
  const auto search = nvrtc_search(roots);
  ASSERT_EQ(search.places.size(), 3U);
  EXPECT_EQ(search.code, ReasonCode::toolchain);
  EXPECT_THAT(search.places[0].candidates, ElementsAre("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"));
  EXPECT_THAT(search.places[1].candidates, ElementsAre(toolkit13, toolkit12));
  EXPECT_THAT(search.places[2].candidates, ElementsAre(wheel13, wheel12));
}

TEST_F(LibrarySearchTest, ANamedFileIsTheOnlyCandidate) {
  SearchRoots roots;
  roots.named = "/opt/mine/libnvrtc.so";
  roots.toolkits = {(root_ / "cuda-13.0").string()};
  make("cuda-13.0/lib64/libnvrtc.so.13");
  const auto search = nvrtc_search(roots);
  ASSERT_EQ(search.places.size(), 1U);
  EXPECT_THAT(search.places[0].candidates, ElementsAre("/opt/mine/libnvrtc.so"));
}

TEST_F(LibrarySearchTest, ANamedFolderIsLookedInto) {
  const auto file = make("mine/libnvrtc.so.13");
  SearchRoots roots;
  roots.named = (root_ / "mine").string();
  const auto search = nvrtc_search(roots);
  ASSERT_EQ(search.places.size(), 1U);
  EXPECT_THAT(search.places[0].candidates, ElementsAre(file));
  roots.named = root_.string();
  EXPECT_THAT(nvrtc_search(roots).places[0].candidates, IsEmpty());
}

TEST_F(LibrarySearchTest, TheDriverNeverComesFromAToolkit) {
  make("cuda-13.0/lib64/stubs/libcuda.so.1");
  make("cuda-13.0/lib64/libcuda.so.1");
  SearchRoots roots;
  roots.toolkits = {(root_ / "cuda-13.0").string()};
  for (const auto& place : driver_search(roots).places)
    for (const auto& candidate : place.candidates) EXPECT_THAT(candidate, ::testing::Not(HasSubstr("cuda-13.0")));
}

TEST_F(LibrarySearchTest, TheReasonSummarisesEverythingTried) {
  const auto broken = make("cuda-13.0/lib64/libnvrtc.so.13");
  LibrarySearch search{"the library", "MOETUNE_NVRTC", ReasonCode::toolchain, "do this", {}};
  search.places = {{"the loader's path", {"libthere-is-none.so.7"}},
                   {"toolkits", {broken}},
                   {"packages", {}},
                   {"the system", {"libm.so.6"}}};
  const auto library =
      find_library(search, [](const DynamicLibrary&) { return std::optional<std::string>("it is not it"); });
  ASSERT_FALSE(library);
  const auto& reason = library.error();
  EXPECT_EQ(reason.code, ReasonCode::toolchain);
  EXPECT_EQ(reason.hint, "do this");
  for (const std::string part :
       {"libthere-is-none.so.7", broken.c_str(), "none in packages", "libm.so.6: it is not it"})
    EXPECT_THAT(reason.have, HasSubstr(part));
}

TEST_F(LibrarySearchTest, AThousandPlacesGiveABoundedReason) {
  LibrarySearch search{"the library", "", ReasonCode::library, "", {}};
  search.places = {{"many", std::vector<std::string>(1000, "/nowhere/libthere-is-none.so.7")}};
  const auto library = find_library(search, [](const DynamicLibrary&) { return std::optional<std::string>(); });
  ASSERT_FALSE(library);
  EXPECT_LT(library.error().have.size(), 2100U);
}

TEST_F(LibrarySearchTest, GoesOnAfterALibraryThatIsRefused) {
  LibrarySearch search{"the library", "", ReasonCode::library, "", {}};
  search.places = {{"here", {"libm.so.6", "libc.so.6"}}};
  const auto library = find_library(search, [](const DynamicLibrary& found) {
    return found.name() == "libm.so.6" ? std::optional<std::string>("no") : std::nullopt;
  });
  ASSERT_TRUE(library);
  EXPECT_EQ(library->name(), "libc.so.6");
}

struct MathApi {
  double (*cosine)(double) = nullptr;
  void (*absent)() = nullptr;
  void (*optional)() = nullptr;
  template <class Self, class Visitor>
  static void symbols(Self& self, Visitor&& visit) {
    visit("cos", self.cosine);
    visit("moetune_absent", self.absent);
    visit("moetune_optional", self.optional, false);
  }
};

TEST_F(LibrarySearchTest, ResolveNamesWhatIsMissingButNotWhatMayBe) {
  const std::string name = "libm.so.6";
  const auto library = DynamicLibrary::open(std::span(&name, 1));
  ASSERT_TRUE(library);
  MathApi api;
  EXPECT_EQ(resolve(*library, api), "it has no moetune_absent");
  ASSERT_NE(api.cosine, nullptr);
  EXPECT_EQ(api.cosine(0), 1.0);
}

}  // namespace
}  // namespace moetune::cuda
