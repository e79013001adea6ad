import FoundationEssentials
import StageSystem
package import SystemPackage
import Testing

/// A program that the package builds, as tests start it.
package enum BuiltProgram {
    /// The variable that names another directory with the programs than that of the tests, such as the release
    /// build.
    package static let variable = "STAGEPACK_TEST_PROGRAMS"

    /// Returns the path of a program: in the directory that ``variable`` names, or else beside the bundle
    /// that holds the tests.
    ///
    /// The daemon is `stagepack` by its other name, a link that the build does not make.
    ///
    /// - Throws: An issue of the test if the program is not there.
    package static func path(of name: FilePath.Component) throws -> FilePath {
        let folder: FilePath
        if let named = ProcessInfo.processInfo.environment[variable] {
            folder = try #require(FilePath(named).resolved, "there is no directory '\(named)'")
        } else {
            folder = try path(ofTestProgram: "stagepack").removingLastComponent()
        }
        if name == "stagepackd" { makeLink(at: folder.appending(name).string) }
        return try executable(folder.appending(name))
    }

    /// Creates the link to `stagepack` if it does not exist.
    ///
    /// Another process of the tests may do the same concurrently.
    private static func makeLink(at path: String) {
        let files = FileManager.default
        guard (try? files.destinationOfSymbolicLink(atPath: path)) == nil else { return }
        // A daemon of an earlier build, which was a separate program.
        try? files.removeItem(atPath: path)
        try? files.createSymbolicLink(atPath: path, withDestinationPath: "stagepack")
    }

    /// Returns the path of a program that is not shipped, which is always beside the bundle that holds the tests.
    ///
    /// - Throws: An issue of the test if the program is not there.
    package static func path(ofTestProgram name: FilePath.Component) throws -> FilePath {
        let link = try Directory.open("/proc/self").link("exe")
        return try executable(FilePath(try #require(link)).removingLastComponent().appending(name))
    }

    private static func executable(_ path: FilePath) throws -> FilePath {
        try #require(FileStatus.isExecutable(path), "the program '\(path)' is not built")
        return path
    }
}
