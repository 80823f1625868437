#include "cuda/stream.h"

namespace moetune::cuda {

Result<Stream> Stream::create(const ContextRef& context) {
  cu::Stream raw = nullptr;
  MOETUNE_CHECK(context->check(context->api().stream_create(&raw, cu::kStreamNonBlocking), "cuStreamCreate"));
  return Stream({context, raw});
}

Status Stream::synchronize() const {
  return context()->check(context()->api().stream_synchronize(raw()), "cuStreamSynchronize");
}

Result<bool> Stream::done() const {
  const auto code = context()->api().stream_query(raw());
  if (code == cu::kNotReady) return false;
  MOETUNE_CHECK(context()->check(code, "cuStreamQuery"));
  return true;
}

Status Stream::wait(const Event& event) const {
  return context()->check(context()->api().stream_wait_event(raw(), event.raw(), 0), "cuStreamWaitEvent");
}

Result<Event> Event::create(const ContextRef& context) {
  cu::Event raw = nullptr;
  MOETUNE_CHECK(context->check(context->api().event_create(&raw, 0), "cuEventCreate"));
  return Event({context, raw});
}

Status Event::record(const Stream& stream) const {
  const auto& context = *event_.context();
  return context.check(context.api().event_record(raw(), stream.raw()), "cuEventRecord");
}

Status Event::record_in_graph(const Stream& stream) const {
  const auto& context = *event_.context();
  return context.check(context.api().event_record_with_flags(raw(), stream.raw(), cu::kEventRecordExternal),
                       "cuEventRecordWithFlags");
}

Status Event::synchronize() const {
  const auto& context = *event_.context();
  return context.check(context.api().event_synchronize(raw()), "cuEventSynchronize");
}

Result<double> elapsed_us(const Event& start, const Event& end) {
  const auto& context = *start.event_.context();
  float milliseconds = 0;
  MOETUNE_CHECK(
      context.check(context.api().event_elapsed_time(&milliseconds, start.raw(), end.raw()), "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1e3;
}

}  // namespace moetune::cuda
