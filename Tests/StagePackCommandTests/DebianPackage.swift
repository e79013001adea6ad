import StageSystem
import Subprocess
import SystemPackage
import Testing

/// A Debian package, downloaded from the machine's package sources: content and programs that were not made for these
/// tests.
///
/// It is unpacked and not installed, so no server is started and the machine is not changed. Downloaded packages are kept beside
/// the build.
enum DebianPackage {
    /// Unpacks the package into a directory, which is made.
    static func unpack(_ name: String, into path: FilePath) async throws {
        let script = """
            set -e
            mkdir -p "$2" "$3"
            cd "$2"
            exec 9>lock; flock 9
            fetch() { apt-get -q download "$1" >&2; }
            have() { ls "$1"_*.deb >/dev/null 2>&1; }
            # Without a list of packages, or with an old one, nothing can be fetched.
            have "$1" || fetch "$1" || { apt-get -q update >&2; fetch "$1"; }
            dpkg-deb --extract "$(ls "$1"_*.deb | head -n 1)" "$3"
            """
        let cache = try Program.path.removingLastComponent().appending("debian-packages")
        try await shell(script, name, cache.string, path.string)
    }
}

extension Trait where Self == ConditionTrait {
    /// The test downloads Debian packages, by apt-get and dpkg-deb.
    static var debianPackages: Self {
        .enabled("content or programs of the test are Debian's") {
            FileStatus.exists("/usr/bin/apt-get") && FileStatus.exists("/usr/bin/dpkg-deb")
        }
    }
}

/// Runs a shell script, expects exit status 0, and returns its standard output.
@discardableResult
func shell(_ script: String, _ arguments: String...) async throws -> String {
    let result = try await Subprocess.run(
        .path("/bin/sh"),
        arguments: Arguments(["-c", script, "sh"] + arguments),
        output: .string(limit: 1 << 22),
        error: .string(limit: 1 << 22)
    )
    try #require(result.terminationStatus.isSuccess, "\(result.standardError)")
    return result.standardOutput
}
