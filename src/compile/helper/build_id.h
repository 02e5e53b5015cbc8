// Which builds of which libraries are loaded in this process.
//
//   DescribeLoadedLibraries({"nvrtc"})  ->  "libnvrtc.so.13:73a6cf8aad39eaf5..."
#pragma once

#include <string>
#include <vector>

namespace whet {

// "name:id" of every loaded library whose file name holds one of `parts`, sorted, with blanks
// between. The id is the GNU build id, or a digest of the file where the linker left none.
std::string DescribeLoadedLibraries(const std::vector<std::string>& parts);

}  // namespace whet
