import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Scripts of the packaging guide and of the image, with programs of the test instead of `stagepack` and `apt-get`.
@Suite(.directory)
struct PackagingScriptTests {
    private static let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()

    /// Runs a script with `sh -e`, and returns its status and output.
    private func run(
        _ script: String,
        _ arguments: [String] = [],
        with programs: [String: String],
        environment: [String: String] = [:]
    ) async throws -> Program.Ending {
        let directory = try TemporaryDirectory.required()
        let bin = try directory.makeDirectory("bin")
        for (name, text) in programs {
            try ProgramFile.write("#!/bin/sh\n\(text)\n", to: bin.path.appending(name))
        }
        let whole = "PATH='\(bin.path)':$PATH\n\(script)\necho done\n"
        var program = Program(wrapper: ["/bin/sh", "-e", "-c", whole, "sh"])
        program.environment = environment
        return try await program.run(arguments)
    }

    /// The lines of a maintainer script in the guide.
    private func guideScript() throws -> String {
        let guide = try text(of: Self.root.appending("docs/guides/packaging.md"))
        let start = try #require(guide.firstRange(of: "```sh\nif [ \"$1\" = configure ]"))
        let rest = guide[start.lowerBound...].dropFirst("```sh\n".count)
        let end = try #require(rest.firstRange(of: "```"))
        return String(rest[..<end.lowerBound])
    }

    /// Without its libraries the program ends with 127; Ctrl-C reaches the shell of the script, too.
    @Test(arguments: ["exit 0", "exit 127", "exit 130", "kill -INT $PPID", "kill -TERM $PPID"])
    func theMaintainerScriptOfTheGuideDoesNotFail(program: String) async throws {
        let ending = try await run(
            try guideScript(),
            ["configure"],
            with: ["stagepack": "echo staging\n\(program)"]
        )
        #expect(ending == Program.Ending(status: 0, output: "staging\ndone\n", error: ""))
    }

    /// The commands of the image's `RUN`.
    private func imageScript() throws -> String {
        let file = try text(of: Self.root.appending("deploy/image/Containerfile"))
        let start = try #require(file.firstRange(of: "\nRUN apt-get"))
        let lines = file[start.lowerBound...].dropFirst("\nRUN ".count)
            .split(separator: "\n", omittingEmptySubsequences: false)
        let last = lines.firstIndex { !$0.hasSuffix("\\") } ?? lines.startIndex
        return lines[...last].joined(separator: "\n")
    }

    @Test(arguments: [(nil, 75), ("0", 75), ("1", 0)] as [(String?, Int32)])
    func anImageMayBeBuiltWithoutPacks(offline: String?, status: Int32) async throws {
        let ending = try await run(
            "(\(try imageScript()))",
            with: [
                "apt-get": "exit 0", "rm": "exit 0", "useradd": "exit 0",
                // The application's server does not respond.
                "stagepack": #"case "$*" in *--strict*) exit 75 ;; esac"#,
            ],
            environment: ["HOOK_DEADLINE": "1"].merging(
                offline.map { ["STAGEPACK_OFFLINE": $0] } ?? [:]
            ) { $1 }
        )
        #expect(ending.status == status, "\(ending)")
    }

    /// The units and the hook name the program by its path, and would start nothing without it.
    @Test func unitsAreInstalledBesideTheirProgramAndRemovedAgain() async throws {
        let target = try TemporaryDirectory.required().path.appending("target")
        let words = ["PREFIX=/usr", "DESTDIR=\(target)"]
        func make(_ goal: String) async throws -> Program.Ending {
            let wrapper = ["/usr/bin/make", "--silent", "--directory", Self.root.string]
            return try await Program(wrapper: wrapper).run([goal] + words)
        }
        let early = try await make("install-service")
        #expect(early.status == 2, "\(early)")
        #expect(early.error.contains("run 'make install PREFIX=/usr' first"), "\(early)")
        #expect(!FileStatus.exists(target))
        let program = try Directory.make(target.appending("usr/bin")).path.appending("stagepack")
        try ProgramFile.write("#!/bin/sh\n", to: program)
        let installed = try await make("install-service")
        #expect(installed.status == 0, "\(installed)")
        for unit in ["system/stagepackd.socket", "user/stagepack-periodic.timer"] {
            #expect(FileStatus.exists(target.appending("usr/lib/systemd/\(unit)")))
        }
        // The second run finds nothing to remove.
        for _ in 1...2 {
            let removed = try await make("uninstall-service")
            #expect(removed.status == 0, "\(removed)")
        }
        let find = Program(wrapper: ["/usr/bin/find", target.string])
        #expect(try await find.run(["-type", "f"]).output == "\(program)\n")
    }

    @Test func theImageGetsPackagesOfEveryName() throws {
        let lines = try text(of: Self.root.appending("deploy/image/Containerfile"))
            .split(separator: "\n")
        #expect(lines.contains("COPY *.deb /tmp/packages/"))
    }

    @Test func theUserOfTheImageHasAHome() throws {
        let lines = try text(of: Self.root.appending("deploy/image/Containerfile"))
            .split(separator: "\n")
        let user = try #require(lines.last { $0.hasPrefix("USER ") }?.dropFirst("USER ".count))
        #expect(lines.contains { $0.contains("useradd --create-home \(user) ") })
    }
}
