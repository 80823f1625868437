// Streams and events: order on the device, and its clock.
#pragma once

#include <cstdint>

#include "cuda/context.h"

namespace moetune::cuda {

class Event;

/// A queue of work that does not wait for the legacy default stream. Move-only; destroying it lets work under way
/// finish.
class Stream {
 public:
  [[nodiscard]] static Result<Stream> create(const ContextRef& context);
  /// Waits until the stream is empty.
  [[nodiscard]] Status synchronize() const;
  /// Whether the stream is empty; an Error where its work failed.
  [[nodiscard]] Result<bool> done() const;
  /// What is put on this stream from now on waits for the event.
  [[nodiscard]] Status wait(const Event& event) const;

  [[nodiscard]] cu::Stream raw() const { return stream_.get(); }
  [[nodiscard]] const ContextRef& context() const { return stream_.context(); }

 private:
  explicit Stream(Owned<cu::Stream, &DriverApi::stream_destroy> stream) : stream_(std::move(stream)) {}
  Owned<cu::Stream, &DriverApi::stream_destroy> stream_;
};

/// A point in a stream, with its time by the device's clock (resolution about half a microsecond). Move-only.
class Event {
 public:
  [[nodiscard]] static Result<Event> create(const ContextRef& context);
  [[nodiscard]] Status record(const Stream& stream) const;
  /// While the stream is being captured: a node of the graph that records the event at every launch.
  [[nodiscard]] Status record_in_graph(const Stream& stream) const;
  [[nodiscard]] Status synchronize() const;
  [[nodiscard]] cu::Event raw() const { return event_.get(); }

 private:
  explicit Event(Owned<cu::Event, &DriverApi::event_destroy> event) : event_(std::move(event)) {}
  Owned<cu::Event, &DriverApi::event_destroy> event_;
  friend Result<double> elapsed_us(const Event& start, const Event& end);
};

/// Microseconds on the device between two events that have happened.
[[nodiscard]] Result<double> elapsed_us(const Event& start, const Event& end);

}  // namespace moetune::cuda
