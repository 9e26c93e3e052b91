// Ctrl-C's words, and what of a script's lines is whole. tests/live/interrupt.py sends the signal.
#include "calib/interrupt.h"

#include <gtest/gtest.h>

namespace ddpsim::test {
namespace {

TEST(Interrupt, SaysWhatIsMissingAndReadsWholeLines) {
  ddpsim::Run run;
  calib::note_interrupted(run, 3, 10);
  ASSERT_EQ(run.skipped.size(), 1U);
  EXPECT_EQ(run.skipped[0].what, "7 of 10 points");
  EXPECT_EQ(run.skipped[0].why, "interrupted after 3 of them");
  EXPECT_THROW(calib::note_interrupted(run, 0, 10), calib::NothingMeasured);
  EXPECT_EQ(calib::last_document("one\ntwo\nthr"), "two");
  EXPECT_EQ(calib::last_document("one\n"), "one");
  EXPECT_THROW(calib::last_document("on"), calib::NothingMeasured);
  EXPECT_THROW(calib::last_document(""), calib::NothingMeasured);
}

}  // namespace
}  // namespace ddpsim::test
