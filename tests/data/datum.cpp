// Declarations of a sample's type (t3w's IDatum) reach loaders through adapters and combinators.
#include <ATen/ops/full.h>

#include <danling/data/dataset_adapter.hpp>
#include <danling/data/source.hpp>
#include <danling/data/subset.hpp>

#include <support/error.hpp>

namespace danling_datum_user {

namespace data = danling::data;

struct Photo {
  static constexpr std::int64_t train_batch_size = 12;
  static constexpr int val_batch_size = 34;
  static constexpr std::int64_t num_workers = 2;
  std::int64_t id = 0;
  std::string uuid() const { return "photo-" + std::to_string(id); }
  static data::Batch collate(const std::vector<Photo>& photos) {
    std::vector<at::Tensor> ids;
    for (const Photo& photo : photos) {
      ids.push_back(at::full({}, photo.id, at::kLong));
    }
    data::Batch batch;
    batch.input = data::default_collate(ids);
    return batch;
  }
  static Photo from_uuid(const std::string& uuid) { return {std::stoll(uuid.substr(6))}; }
};

struct Large : data::Datum {
  static constexpr std::int64_t train_batch_size = 64;
};

struct Photos {
  using datum_type = Photo;
  std::int64_t size() const { return 5; }
  Photo get(std::int64_t i) const { return {100 + i}; }
  bool train() const { return true; }
};

/// Reads whole batches, and names the type whose declarations hold.
struct WholePhotos {
  using datum_type = Photo;
  std::int64_t size() const { return 5; }
  data::Batch get_batch(std::span<const std::int64_t>) const { return {}; }
};

struct MaybeNamed {
  std::optional<int> uuid;
  at::Tensor x;
};

struct PhotoStream {
  std::int64_t at = 0;
  std::optional<Photo> next() { return at < 3 ? std::optional<Photo>(Photo{at++}) : std::nullopt; }
  void reset(std::int64_t) { at = 0; }
  danling::State state_dict() const { return at; }
  void load_state_dict(const danling::State& state) { at = state.integer(); }
};

}  // namespace danling_datum_user

namespace {

namespace datum_test {

namespace data = danling::data;
using danling_datum_user::MaybeNamed;
using danling_datum_user::Photo;

static_assert(data::HasUuid<Photo> && data::HasUuid<MaybeNamed> && !data::HasUuid<data::Sample>);
static_assert(data::FromUuid<Photo, std::string> && !data::FromUuid<MaybeNamed, std::string>);

void check_declared(const data::LoaderDefaults& declared) {
  CHECK(declared.train_batch_size == 12);
  CHECK(declared.val_batch_size == 34);
  CHECK(declared.num_workers == 2);
}

TEST_CASE("Datum: a type that derives from it has t3w's defaults, where it declares no others", "[data]") {
  const data::LoaderDefaults plain = data::declared_defaults<data::Datum>();
  CHECK(plain.train_batch_size == 2);
  CHECK(plain.val_batch_size == 2);
  CHECK(plain.num_workers == 0);
  const data::LoaderDefaults own = data::declared_defaults<danling_datum_user::Large>();
  CHECK(own.train_batch_size == 64);
  CHECK(own.val_batch_size == 2);
}

TEST_CASE("uuid_of: a member or a function, a text or a number, or none", "[data]") {
  CHECK(data::uuid_of(Photo{7}) == "photo-7");
  CHECK(data::uuid_of(MaybeNamed{5, {}}) == "5");
  CHECK_FALSE(data::uuid_of(MaybeNamed{std::nullopt, {}}));
  CHECK_FALSE(data::uuid_of(data::Sample{}));
}

TEST_CASE("from_uuid: makes the sample anew", "[data]") {
  const Photo photo{42};
  CHECK(data::from_uuid<Photo>(*data::uuid_of(photo)).id == 42);
}

TEST_CASE("LoaderDefaults: what a sample's type declares reaches loaders through datasets, subsets and streams",
          "[data]") {
  const auto photos = data::make_dataset(danling_datum_user::Photos{});
  check_declared(photos->loader_defaults());
  check_declared(data::subset(photos, {3, 1}).loader_defaults());
  check_declared(data::make_dataset(danling_datum_user::WholePhotos{})->loader_defaults());
  check_declared(data::Source<data::Batch>(photos).loader_defaults());
  check_declared(data::make_stream(danling_datum_user::PhotoStream{})->loader_defaults());

  struct Plain {
    std::int64_t size() const { return 1; }
    data::Sample get(std::int64_t) const { return {}; }
  };
  const data::LoaderDefaults none = data::make_dataset(Plain{})->loader_defaults();
  CHECK_FALSE((none.train_batch_size || none.val_batch_size || none.num_workers));
}

TEST_CASE("DatasetAdapter: the samples' uuids are in the batch's info and in the metadata", "[data]") {
  const auto photos = data::make_dataset(danling_datum_user::Photos{});
  data::BatchInfo info;
  info.indices = {0, 1};
  const data::Batch batch = data::subset(photos, {4, 2}).get_batch(info.indices, info);
  REQUIRE(batch.info.entry_keys.size() == 2);
  CHECK(batch.info.entry_keys[0] == "photo-104");
  info.entry_keys = batch.info.entry_keys;
  CHECK(info.metadata(1).entry_key == "photo-102");
  const std::vector<std::size_t> second = {1};
  CHECK(info.select(second).metadata(0).entry_key == "photo-102");
}

}  // namespace datum_test

}  // namespace
