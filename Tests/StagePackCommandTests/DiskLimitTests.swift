import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A number of free blocks, or of free files, of a disk.
struct DiskLimit: CustomTestStringConvertible {
    var resource: Resource
    var rest: Int

    enum Resource: String {
        case blocks
        case files
    }

    var testDescription: String { "\(rest) \(resource.rawValue)" }

    /// The options that limit a mounted tmpfs to its current use and `rest` more; the shell's arguments are the numbers from
    /// `stat -f -c '%b %f %c %d'`.
    var options: String {
        switch resource {
        case .blocks: "size=$((($1 - $2 + \(rest)) * 4))k"
        case .files: "nr_inodes=$(($3 - $4 + \(rest)))"
        }
    }
}

/// A command, and the ones that prepared the container.
struct LimitedCommand: CustomTestStringConvertible {
    var name: String
    /// The preparing commands, each with the number of its manifest.
    var before: [String] = []
    var command: String
    /// The versions of the pack that may be staged after a failure, and the one after a success; 0 for none.
    var versions: (before: Int, after: Int)
    /// `true` if the command succeeds also on a full disk.
    var makesRoom = false
    /// `true` to test also with a little space and a few files left, since the command stages a pack.
    var stages = true

    var testDescription: String { name }

    private static let first = "prefetch one"
    private static let second = "prefetch two"

    static let all: [LimitedCommand] = [
        .init(name: "prefetch", command: "prefetch one", versions: (0, 1)),
        .init(name: "hook", command: "prefetch one --hook --deadline 20", versions: (0, 1)),
        .init(name: "update", before: [first], command: second, versions: (1, 2)),
        .init(
            name: "hook of an update",
            before: [first],
            command: "prefetch two --hook --deadline 20",
            versions: (1, 2),
            stages: false
        ),
        .init(
            name: "up to date",
            before: [first],
            command: "prefetch one",
            versions: (1, 1),
            stages: false
        ),
        .init(name: "load", command: "load aurora one", versions: (0, 1), stages: false),
        .init(
            name: "gc",
            before: [first, second],
            command: "gc --previous",
            versions: (2, 2),
            makesRoom: true,
            stages: false
        ),
        .init(
            name: "remove",
            before: [first],
            command: "remove aurora",
            versions: (1, 0),
            makesRoom: true,
            stages: false
        ),
        .init(
            name: "rollback",
            before: [first, second],
            command: "rollback aurora",
            versions: (2, 1),
            stages: false
        ),
        .init(
            name: "repair",
            before: [first, "damage"],
            command: "repair one",
            versions: (1, 1)
        ),
    ]
}

/// Commands on an almost full disk: they succeed or report the reason, keep the staged packs, and succeed once there is space.
@Suite(.server, .directory, .mountNamespace)
struct DiskLimitTests {
    /// The output of one command with one limit, by the name of the line.
    private struct Report {
        private var lines: [String: String] = [:]
        let text: String

        init(_ text: String) {
            self.text = text
            for line in text.split(separator: "\n") {
                let parts = line.split(separator: "=", maxSplits: 1).map(String.init)
                lines[parts[0]] = parts.count > 1 ? parts[1] : ""
            }
        }

        subscript(name: String) -> String { lines[name] ?? "nothing" }
    }

    /// The arguments for the shell, with the manifest that each command uses.
    private func words(_ command: String, _ world: World) -> String {
        let manifests = ["one", "two"]
        let rest = command.split(separator: " ").map(String.init)
        let source = rest.first { manifests.contains($0) }.map {
            " --manifest \(world.server.url("/\($0).json"))"
        }
        return rest.filter { !manifests.contains($0) }.joined(separator: " ") + (source ?? "")
    }

    private func step(_ command: LimitedCommand, _ limit: DiskLimit) async throws -> Report {
        var world = try World()
        for (name, version) in [("one", 1), ("two", 2)] {
            let pack = try SamplePack.small(.aurora, version: version)
            world.server.answer("/\(name).json", with: .content(try world.manifest(of: [pack])))
            try world.publish(pack)
        }
        let room = "size=256m,nr_inodes=4096"
        let before = command.before.map {
            // The changed file keeps its size: only the digest differs.
            $0 == "damage"
                ? "printf x | dd of=$C/packs/aurora/readme.txt conv=notrunc 2>/dev/null"
                : "run \(words($0, world)) >/dev/null || exit 99"
        }
        let text = """
            D='\(world.directory.path)/disk'; C=$D/container; T='\(world.directory.path)'
            run() { '\(try Program.path)' "$@" --container "$C"; }
            version() { readlink "$C/packs/aurora" | sed 's,.*/aurora/,,; s,-.*,,'; }
            mkdir "$D"; mount -t tmpfs -o \(room) none "$D" || exit 98
            head -c 4096 /dev/zero >"$D/page"
            \(before.joined(separator: "\n"))
            set -- $(stat -f -c '%b %f %c %d' "$D")
            mount -o remount,\(limit.options) "$D" || exit 97
            run \(words(command.command, world)) >"$T/output" 2>"$T/error"; echo "status=$?"
            echo "lines=$(wc -l <"$T/output")"
            echo "error=$(grep '^stagepack: error: ' "$T/error")"
            echo "hint=$(grep '^hint: ' "$T/error")"
            echo "version=$(version)"
            run status >/dev/null; echo "reading=$?"
            run verify >/dev/null; echo "verify=$?"
            run path aurora >/dev/null; echo "path=$?"
            mount -o remount,\(room) "$D" || exit 96
            run \(words(command.command, world)) >"$T/output" 2>"$T/error"; echo "again=$?"
            echo "then=$(version)"
            run verify >/dev/null; echo "whole=$?"
            run doctor >/dev/null; echo "doctor=$?"
            cat "$T/error"
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text]
        let ending = try await world.program.run([])
        #expect(ending.status == 0, "\(ending)")
        return Report(ending.output + ending.error)
    }

    /// The commands with the lowest limits of free blocks and files; `Tests/torture/run limits` tries all limits.
    private static let cases = LimitedCommand.all.flatMap { command in
        let blocks = command.stages ? [0, 1] : [0]
        let files = command.stages ? [0, 14] : [0]
        return blocks.map { (command, DiskLimit(resource: .blocks, rest: $0)) }
            + files.map { (command, DiskLimit(resource: .files, rest: $0)) }
    }

    @Test(arguments: cases)
    func nothingIsLostAndTheReasonIsReported(
        _ command: LimitedCommand,
        _ limit: DiskLimit
    ) async throws {
        let report = try await step(command, limit)
        let isHook = command.command.contains("--hook")
        let (before, after) = ("\(command.versions.before)", "\(command.versions.after)")
        let found = report["version"].isEmpty ? "0" : report["version"]
        if report["status"] == "0" {
            #expect(found == after || isHook && found == before, "\(report.text)")
        } else {
            #expect(report["status"] == "40", "\(report.text)")
            #expect(report["error"].contains("No space left") || report["error"].contains("space"))
            // A failed command may have removed the files that it had created.
            let hints =
                ["hint: free some space"] + (limit.resource == .files ? ["hint: delete files"] : [])
            #expect(hints.contains { report["hint"].hasPrefix($0) }, "\(report.text)")
            #expect([before, after].contains(found), "\(report.text)")
        }
        // A hook prints one line at the start, and one for the application.
        if isHook { #expect(report["lines"] == "2") }
        if isHook || command.makesRoom { #expect(report["status"] == "0", "\(report.text)") }
        // Commands that read can only be tested if there is a container.
        if !command.before.isEmpty, command.name != "repair" {
            #expect(report["reading"] == "0", "\(report.text)")
            #expect(report["verify"] == "0", "\(report.text)")
            #expect(report["path"] == (found == "0" ? "2" : "0"), "\(report.text)")
        }
        // A second rollback undoes the first one.
        let last = command.name == "rollback" && report["status"] == "0" ? before : after
        #expect(report["again"] == "0", "\(report.text)")
        #expect(report["then"] == (last == "0" ? "" : last), "\(report.text)")
        #expect(report["whole"] == "0", "\(report.text)")
        // If no version is staged, 'doctor' reports the missing essential pack.
        #expect(report["doctor"] == (last == "0" ? "3" : "0"), "\(report.text)")
    }

    @Test func garbageIsCollectedWhereNoLockFileCanBeMade() async throws {
        var world = try World()
        for (name, version) in [("one", 1), ("two", 2)] {
            let pack = try SamplePack.small(.aurora, version: version)
            world.server.answer("/\(name).json", with: .content(try world.manifest(of: [pack])))
            try world.publish(pack)
        }
        let text = """
            D='\(world.directory.path)/disk'; C=$D/container
            run() { '\(try Program.path)' "$@" --container "$C"; }
            mkdir "$D"; mount -t tmpfs -o size=256m,nr_inodes=4096 none "$D" || exit 98
            run prefetch --manifest \(world.server.url("/one.json")) 2>/dev/null >&2 || exit 99
            run prefetch --manifest \(world.server.url("/two.json")) 2>/dev/null >&2 || exit 99
            # As a copy of a container has it, or one that was restored.
            rm "$C/locks/aurora" "$C/locks/.staging" "$C/locks/.history"
            mkdir "$C/staging/aurora.dead"; echo 1 >"$C/staging/aurora.dead/lease"
            echo 1 >"$C/downloads/\(String(repeating: "0", count: 64)).part.1"
            set -- $(stat -f -c '%b %f %c %d' "$D")
            mount -o remount,\(DiskLimit(resource: .files, rest: 0).options) "$D" || exit 97
            run doctor | grep -A1 'problem: '
            run gc --previous
            ls -A "$C/generations/aurora" "$C/staging" "$C/downloads" | grep -c .
            run verify; ls "$C/locks/.spare" >/dev/null && echo spare
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text]
        let ending = try await world.program.run([])
        let output = """
            problem: files: the file system has room for 0 more files
              hint: delete files ('df -i' counts them) or use a file system with more inodes, or run 'stagepack gc --previous --container \(world.directory.path)/disk/container'
            removed 1 generation, 1 download, 1 leftover
            4
            aurora: as it was staged
            spare

            """
        #expect(ending == Program.Ending(status: 0, output: output, error: ""))
    }
}
