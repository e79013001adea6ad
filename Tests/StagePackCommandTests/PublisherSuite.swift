import StageSystem
import SystemPackage
import Testing

/// Tests of publishers' commands, which run in a directory with their sources.
protocol PublisherSuite {
    /// The directory.
    var directory: Directory { get }
    /// The program, which runs there.
    var program: Program { get }
}

extension PublisherSuite {
    /// Writes a file in the directory, and makes the directories above it.
    func write(_ name: String, _ text: String) throws {
        let path = directory.path.pushing(FilePath(name))
        let above = try Directory.make(path.removingLastComponent())
        try above.write(Array(text.utf8), to: try #require(path.lastComponent), durably: false)
    }

    /// Runs the program with the words of a text as arguments.
    func run(_ arguments: String) async throws -> Program.Ending {
        try await program.run(arguments.split(separator: " ").map(String.init))
    }
}
