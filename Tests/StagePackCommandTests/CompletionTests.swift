import FoundationEssentials
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// The completion scripts, which run in the shell of the user who presses TAB.
@Suite(.directory)
struct CompletionTests {
    /// Writes a program that records that it ran, and prints words, into a folder of this name.
    private func makeProgram(_ folder: String, printing words: String) throws -> FilePath {
        let directory = try TemporaryDirectory.required()
        let location = try directory.makeDirectory(FilePath(folder))
        let script = """
            #!/bin/sh
            touch '\(location.path)/ran'
            printf '%s\\n' '\(words)'

            """
        try location.write(
            Array(script.utf8),
            to: "stagepack",
            durably: false,
            exactly: [.ownerReadWriteExecute, .groupReadExecute, .otherReadExecute]
        )
        return location.path
    }

    @Test func bashRunsTheInstalledProgramAndExpandsNothing() async throws {
        let directory = try TemporaryDirectory.required()
        let expanded = directory.path.appending("expanded")
        let good = try makeProgram("good", printing: "org.example.$(touch \(expanded))")
        let evil = try makeProgram("evil", printing: "org.evil")
        let generated = try await Program().run(["--generate-completion-script", "bash"])
        #expect(generated.status == 0, "\(generated.error)")
        try directory.write(Array(generated.output.utf8), to: "script", durably: false)
        let shell = """
            . '\(directory.path)/script'
            COMP_WORDS=('\(evil)/stagepack' status --app org)
            COMP_CWORD=3
            COMP_LINE="${COMP_WORDS[*]}"
            COMP_POINT=${#COMP_LINE}
            _stagepack stagepack org --app
            printf '%s\\n' "${COMPREPLY[@]}"
            """
        let result = try await Subprocess.run(
            .path("/bin/bash"),
            arguments: ["--norc", "-c", shell],
            environment: .custom(["PATH": "\(good):/usr/bin:/bin"]),
            output: .string(limit: 1 << 16),
            error: .string(limit: 1 << 16)
        )
        #expect(FileStatus.exists(good.appending("ran")), "\(result.standardError)")
        #expect(!FileStatus.exists(evil.appending("ran")))
        #expect(!FileStatus.exists(expanded))
        #expect(result.standardOutput == "org.example.\\$\\(touch\\ \(expanded)\\)\n")
    }

    /// A command as ArgumentParser describes it.
    private struct Command: Decodable {
        var commandName: String
        var arguments: [Argument]?
        var subcommands: [Command]?

        /// The arguments with values that a shell can complete, and that have no completion.
        func incomplete(in parents: [String] = []) -> [String] {
            let path = parents + [commandName]
            let own = (arguments ?? []).filter { $0.isKnown && $0.completionKind == nil }
                .map {
                    (path + [$0.preferredName?.name ?? $0.valueName ?? ""]).joined(separator: " ")
                }
            return own + (subcommands ?? []).flatMap { $0.incomplete(in: path) }
        }
    }

    private struct Argument: Decodable {
        struct Name: Decodable { var name: String }
        struct Completion: Decodable {}

        var kind: String
        var preferredName: Name?
        var valueName: String?
        var completionKind: Completion?

        /// True if the values are packs, registered applications, files, directories, or words of a list.
        var isKnown: Bool {
            let values = [
                "archive", "dir", "directory", "event", "file", "files", "format", "index",
                "manifest", "pack", "packs", "policy", "recipe", "store", "style", "type", "when",
            ]
            let isApplication =
                valueName == "id" && (kind == "positional" || preferredName?.name == "app")
            return kind != "flag" && (isApplication || values.contains(valueName ?? ""))
        }
    }

    private struct Description: Decodable { var command: Command }

    @Test func everyArgumentThatAShellCanCompleteHasACompletion() async throws {
        let ending = try await Program().run(["--experimental-dump-help"])
        #expect(ending.status == 0, "\(ending.error)")
        let data = Data(ending.output.utf8)
        let command = try JSONDecoder().decode(Description.self, from: data).command
        #expect(command.incomplete() == [])
    }

    /// The shells that may be missing on this machine.
    @Test(arguments: ["zsh", "fish"])
    func otherShellsRunTheInstalledProgram(shell: String) async throws {
        let generated = try await Program().run(["--generate-completion-script", shell])
        #expect(generated.status == 0, "\(generated.error)")
        #expect(generated.output.contains("command stagepack "))
        for word in ["\"${command_name}\"", "command $tokens[1]"] {
            #expect(!generated.output.contains(word))
        }
    }
}
