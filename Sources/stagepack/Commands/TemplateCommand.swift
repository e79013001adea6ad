import ArgumentParser
import StagePublish
import StageSystem
import SystemPackage

struct TemplateCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "template",
        abstract: "Write a packaging recipe to begin with.",
        discussion: "The comments in it say what there is; 'stagepack package' reads it."
    )

    @Option(
        name: [.customShort("o"), .customLong("output-path")],
        help: ArgumentHelp(
            "The file to write, which must not exist. Without it: standard output.",
            valueName: "file"
        ),
        completion: .file()
    )
    var output: String?

    var printsJSON: Bool { false }

    func perform() async throws(CommandFailure) -> ExitStatus {
        guard let output else {
            Console.write(RecipeTemplate.text, to: 1)
            return .success
        }
        try NewFile.create(output, Array(RecipeTemplate.text.utf8))
        return .success
    }
}

/// A file that must not be there yet.
enum NewFile {
    static func create(_ path: String, _ content: [UInt8]) throws(CommandFailure) {
        let path = FilePath(path)
        let above = path.removingLastComponent()
        guard let name = path.lastComponent else {
            throw .usage("expected a file, found '\(path)'")
        }
        do throws(FileError) {
            let directory = try Directory.open(above.isEmpty ? "." : above)
            guard try directory.status(FilePath(name)) == nil else {
                throw FileError("create", path, .fileExists)
            }
            try directory.write(content, to: name, durably: true)
        } catch {
            throw CommandFailure(output: error)
        }
    }
}
