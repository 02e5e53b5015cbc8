// The texts that stand before an emulated kernel's source, embedded at build time.
#pragma once

namespace whet::emulator {

const char* HooksText();
const char* DevicePreludeText();

}  // namespace whet::emulator
