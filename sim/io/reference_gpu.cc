#include "sim/io/reference_gpu.h"

#include "sim/io/codecs.h"

namespace ddpsim::io {
namespace {

Profile read_reference() {
  Profile p = read_profile(parse_json(kReferenceMeasured, kReferenceName), kReferenceName);
  // The file of the GPU alone, without what it extends: these are its own facts.
  Json document = parse_json(kReferenceDatasheet, "its datasheet");
  Reader sheet(document, "its datasheet");
  Reader compute = sheet.at("compute");
  Reader peaks = compute.at("peak_flops");
  for (Precision each : kPrecisions.names())
    p.compute.peak_flops[each] = peaks.at(name_of(each)).number();
  p.compute.sms = p.costs->sms;
  p.compute.clock_hz = compute.at("clock_hz").number();
  p.memory.bandwidth_bytes_per_s = sheet.at("memory").at("bandwidth_bytes_per_s").number();
  return p;
}

}  // namespace

const Profile& reference_gpu() {
  static const Profile reference = read_reference();
  return reference;
}

}  // namespace ddpsim::io
