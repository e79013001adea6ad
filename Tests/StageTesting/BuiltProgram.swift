import FoundationEssentials
import StageSystem
public import SystemPackage
import Testing

/// A program that the package builds, as tests start it.
public enum BuiltProgram {
    /// The variable that names another directory with the programs than that of the tests, such as one
    /// with those of the optimiser.
    public static let variable = "STAGEPACK_TEST_PROGRAMS"

    /// Returns the path of a program: in the directory that ``variable`` names, or else beside the bundle
    /// that holds the tests.
    ///
    /// - Throws: An issue of the test if the program is not there.
    public static func path(of name: FilePath.Component) throws -> FilePath {
        let folder: FilePath
        if let named = ProcessInfo.processInfo.environment[variable] {
            folder = try #require(FilePath(named).resolved, "there is no directory '\(named)'")
        } else {
            let link = try Directory.open("/proc/self").link("exe")
            folder = FilePath(try #require(link)).removingLastComponent()
        }
        let path = folder.appending(name)
        try #require(FileStatus.isExecutable(path), "the program '\(path)' is not built")
        return path
    }
}
