import ArgumentParser
import StageSystem
import SystemPackage

/// The option for a new output file.
struct NewFileOptions: ParsableArguments {
    @Option(
        name: [.customShort("o"), .customLong("output-path")],
        help: ArgumentHelp(
            "The file to write, which must not exist. Default: standard output.",
            valueName: "file"
        ),
        completion: .file()
    )
    var output: String?

    /// Writes the content to the file, which must not exist, or to standard output.
    func write(_ content: [UInt8]) throws(CommandFailure) {
        guard let output else {
            return Console.write(String(decoding: content, as: UTF8.self), to: 1)
        }
        let path = FilePath(output)
        let above = path.removingLastComponent()
        guard let name = path.lastComponent else {
            throw .usage("expected a file, found '\(path)'")
        }
        do throws(FileError) {
            let directory = try Directory.open(above.isEmpty ? "." : above)
            guard try directory.status(FilePath(name)) == nil else {
                throw FileError("create", path: path, errno: .fileExists)
            }
            try directory.write(content, to: name, durably: true)
        } catch {
            var failure = CommandFailure(output: error)
            if error.errno == .fileExists { failure.hint = CommandFailure.hintForExistingFile }
            throw failure
        }
    }
}
