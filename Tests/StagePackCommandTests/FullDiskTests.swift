import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Failures that need a mount: the program runs in a separate mount namespace, which needs root.
@Suite(.server, .directory, .mountNamespace)
struct FullDiskTests {
    /// The output of `verify` after the failure, and the number of lines in a listing of two directories: only
    /// the first generation.
    private static let left = "aurora: as it was staged\n4\n"

    /// Stages version 1, changes the container by `script`, and runs `prefetch` for version 2.
    private func prefetch(
        _ second: SamplePack,
        before: String = "",
        after script: String
    ) async throws -> (World, Program.Ending) {
        var world = try World()
        let first = try SamplePack.small(.aurora)
        try world.publish(first)
        let answer = Answer.content(try world.manifest(of: [first]))
        try world.publish(second)
        world.server.answer(
            "/manifest.json",
            with: answer,
            .content(try world.manifest(of: [second]))
        )
        let names = "C='\(world.container)'; P='\(try Program.path)'\n"
        let text = """
            mkdir -p "$C"; \(before)
            $P prefetch "$@" || exit 99
            \(script)
            $P prefetch "$@"; status=$?
            $P verify --container "$C" || exit 98
            ls "$C/staging" "$C/generations/aurora" | wc -l
            exit $status
            """
        world.program.wrapper = [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c", names + text, "sh",
        ]
        let arguments = ["--quiet", "--progress", "none", "--attempts", "1"]
        return (world, try await world.program.run(arguments + world.source))
    }

    @Test func aPackThatDoesNotFitIsRefusedBeforeAnythingIsFetched() async throws {
        let large = try SamplePack.large(.aurora, version: 2, mebibytes: 4)
        let (world, ending) = try await prefetch(
            large,
            before: "mount -t tmpfs -o size=18m none \"$C\"",
            after: ""
        )
        let error = """
            stagepack: error: pack 'aurora': not enough space: 25.2 MB needed, of which 16.8 MB stay free; 18.8 MB are free, SIZE are missing
            hint: free some space: 'stagepack du --container DIRECTORY/container' shows what packs take

            """
        let text = world.masked(ending.error)
            .replacing(#/\d\.\d MB are missing/#, with: "SIZE are missing")
        #expect(text == error)
        #expect(ending.output == Self.left)
        #expect(ending.status == 40)
        #expect(world.server.counts(for: large.path).requests == 0)
    }

    /// The hint names a command that frees space, and none that does not.
    @Test func theHintNamesWhatFreesSpace() async throws {
        var world = try World()
        let extra = try SamplePack.small(try PackID("extra"), policy: .onDemand)
        let large = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(extra, large)
        let text = """
            C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=18m none "$C"
            $P fetch extra "$@" || exit 99
            $P fetch aurora "$@"
            $P fetch extra aurora "$@"
            $P remove extra --container "$C" --quiet || exit 98
            $P fetch aurora "$@"
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let arguments = ["--quiet", "--progress", "none", "--attempts", "1"]
        let ending = try await world.program.run(arguments + world.source)
        #expect(ending.status == 40, "\(ending)")
        let hints = world.masked(ending.error).split(separator: "\n")
            .filter { $0.hasPrefix("hint: ") }
            .map { $0.replacing(#/\d+\.\d kB/#, with: "SIZE") }
        let options = "--container DIRECTORY/container'"
        #expect(
            hints == [
                "hint: free some space, or run 'stagepack remove extra \(options), which frees SIZE",
                "hint: free some space: 'stagepack du \(options) shows what packs take",
                "hint: free some space: 'stagepack du \(options) shows what packs take",
            ]
        )
    }

    @Test func aPackWithMoreFilesThanInodesIsRefusedBeforeAnythingIsFetched() async throws {
        let many = try SamplePack(
            .aurora,
            version: 2,
            (0..<400).map { .init("\($0)", content: [1]) }
        )
        let (world, ending) = try await prefetch(
            many,
            before: "mount -t tmpfs -o size=64m,nr_inodes=200 none \"$C\"",
            after: ""
        )
        // 400 files, a directory, the container's records, and the reserve.
        let error = """
            stagepack: error: pack 'aurora': not enough space: 477 inodes needed, of which 64 stay free; free: COUNT, missing: COUNT
            hint: delete files ('df -i' counts them) or use a file system with more inodes: 'stagepack du --container DIRECTORY/container' shows what packs take

            """
        let text = world.masked(ending.error)
            .replacing(#/free: \d+, missing: \d+/#, with: "free: COUNT, missing: COUNT")
        #expect(text == error)
        #expect(ending.output == Self.left)
        #expect(ending.status == 40)
        #expect(world.server.counts(for: many.path).requests == 0)
    }

    /// The manifest does not state the directories, of which there are ten for each file.
    @Test func aFullDiskIsReportedAndStagedPacksStay() async throws {
        let many = try SamplePack(
            .aurora,
            version: 2,
            (0..<20).map { .init("\($0)/b/c/d/e/f/g/h/i/j/file", content: [1]) }
        )
        let (world, ending) = try await prefetch(
            many,
            before: "mount -t tmpfs -o size=64m,nr_inodes=200 none \"$C\"",
            after: ""
        )
        let error = """
            stagepack: error: pack 'aurora': cannot create \
            'DIRECTORY/container/staging/aurora.MARK/content/PATH': No space left on device
            hint: free some space: 'stagepack du --container DIRECTORY/container' shows what packs take

            """
        let text = world.masked(ending.error)
            .replacing(#/content/NUMBER[a-z/]*'/#, with: "content/PATH'")
        #expect(text == error)
        #expect(ending.output == Self.left)
        #expect(ending.status == 40)
    }

    @Test func aContainerThatCannotBeWrittenIsReportedAndRead() async throws {
        let (world, ending) = try await prefetch(
            try .small(.aurora, version: 2),
            after: "mount --bind \"$C\" \"$C\"; mount -o remount,ro,bind \"$C\""
        )
        let error = """
            stagepack: error: cannot open 'DIRECTORY/container/locks/.trust': Read-only file system
            hint: make the file system writable, or pass --container

            """
        #expect(world.masked(ending.error) == error)
        #expect(ending.output == Self.left)
        #expect(ending.status == 41)
    }

    @Test func aContainerOfAnotherUserIsReportedAndRead() async throws {
        let (world, ending) = try await prefetch(
            try .small(.aurora, version: 2),
            after: "P=\"/usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups $P\""
        )
        let error = """
            stagepack: error: cannot open 'DIRECTORY/container/locks/.trust': Permission denied
            hint: run it as the user that owns the container, or pass --container

            """
        #expect(world.masked(ending.error) == error)
        #expect(ending.output == Self.left)
        #expect(ending.status == 41)
    }

    /// Runs each command in turn, with the manifest of its packs, on a disk of 44 MiB, and prints the
    /// generations after each.
    private func run(
        _ steps: [(command: String, packs: [SamplePack])]
    ) async throws -> Program.Ending {
        var world = try World()
        var answers: [Answer] = []
        for step in steps {
            answers.append(.content(try world.manifest(of: step.packs)))
            try world.publish(step.packs)
        }
        world.server.answer("/manifest.json", with: answers)
        let text = """
            C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=44m none "$C"
            for command in \(steps.map { "'\($0.command)'" }.joined(separator: " ")); do
                $P $command "$@" || exit 99
                (cd "$C/generations" && ls -d */* | cut -d- -f1 | tr '\\n' ' '; echo)
            done
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let arguments = ["--quiet", "--progress", "none", "--attempts", "1"]
        return try await world.program.run(arguments + world.source)
    }

    /// The disk fills while frames of the delta set arrive: the failed write ends their transfer, and is the error of the run.
    @Test func aDiskThatFillsDuringAnUpdateByDeltasIsReported() async throws {
        var world = try World()
        let publisher = try IndexedPublisher(world)
        var content = noise(2_000_000)
        try publisher.write(["large": content])
        let first = try await publisher.package(version: 1)
        let other = noise(content.count, seed: 7)
        for offset in stride(from: 0, to: content.count - 8192, by: 8192) {
            content.replaceSubrange(offset..<offset + 4096, with: other[offset..<offset + 4096])
        }
        try publisher.write(["large": content])
        let second = try await publisher.package(version: 2, base: first)
        let manifests = [
            try publisher.manifest(of: first, version: 1),
            try publisher.manifest(of: second, version: 2),
        ]
        world.server.answer("/manifest.json", with: manifests.map { Answer.content($0) })
        let sets = publisher.store.appending("d")
        let name = try #require(try Directory.open(sets).entries().first).name
        let set = try bytes(of: sets.appending(name))
        world.server.answer("/d/\(name)", with: Self.slowSet(set, in: world.directory.path))
        let text = """
            C='\(world.container)'; P='\(try Program.path)'; cd '\(world.directory.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=40m none "$C"
            $P fetch levels "$@" || exit 99
            (
                until [ -e requested ]; do sleep 0.1; done
                cat /dev/zero >"$C/filler" 2>/dev/null
                touch full
            ) &
            $P fetch levels "$@"; status=$?
            kill $! 2>/dev/null
            exit $status
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let arguments = ["--quiet", "--progress", "none", "--attempts", "1"]
        let ending = try await world.program.run(arguments + world.source)
        #expect(ending.status == 40, "\(ending)")
        #expect(ending.error.contains(": No space left on device"), "\(ending)")
    }

    /// Returns a response with the table of a delta set, or with frames once the disk is full: the first half of them at once, and
    /// the others byte by byte.
    private static func slowSet(_ set: [UInt8], in directory: FilePath) -> Answer {
        .script { wire in
            let start = wire.request.rangeStart ?? 0
            let part = set[start...min(wire.request.rangeEnd ?? .max, set.count - 1)]
            if start > 0 {
                // Without this file, the shell does not fill the disk, and the test fails.
                try? Directory.open(directory).write([1], to: "requested", durably: false)
                for _ in 0..<15_000 where !FileStatus.exists(directory.appending("full")) {
                    wire.pause(milliseconds: 20)
                }
            }
            wire.send(
                """
                HTTP/1.1 206 Partial Content\r
                Content-Range: bytes \(start)-\(part.endIndex - 1)/\(set.count)\r
                Content-Length: \(part.count)\r
                Connection: close\r
                \r

                """
            )
            let slowCount = start > 0 ? part.count / 2 : 0
            wire.send(Array(part.dropLast(slowCount)))
            wire.drip(Array(part.suffix(slowCount)), pause: 10_000)
        }
    }

    /// The record of unused objects does not fit on the full disk of the store.
    @Test func aStoreOnAFullDiskIsCollected() async throws {
        var program = try World().program
        let text = """
            set -e; P='\(try Program.path)'; cd '\(try TemporaryDirectory.required().path)'
            mkdir store files; mount -t tmpfs -o size=4m none store
            cat >recipe.json <<'END'
            {"assetPackID": "a", "downloadPolicy": {"onDemand": {}},
             "fileSelectors": [{"directory": "files"}]}
            END
            for number in 1 2; do
                head -c 300000 /dev/urandom >files/file
                $P package recipe.json --indexed --no-archive -o store --json >index.json
            done
            index=store/i/$(sed -n 's/.*"sha256" : "\\(.*\\)".*/\\1/p' index.json)
            $P manifest create --application net.example.app -o store/manifest.json
            $P manifest add store/manifest.json "$index" --recipe recipe.json --pack-version 1
            cat /dev/zero >store/other 2>/dev/null || true
            "$@"
            ls store/b | wc -l
            """
        program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let ending = try await program.run([
            try Program.path.string, "store", "gc", "store", "--manifest", "store/manifest.json",
            "--keep", "0",
        ])
        #expect(ending.status == 0, "\(ending.error)")
        #expect(ending.output.hasSuffix("\n1\n"), "\(ending.output)")
    }

    @Test func thePreviousGenerationGoesFirstWhereAnUpdateDoesNotFit() async throws {
        let versions = try (1...3).map { try SamplePack.large(.aurora, version: $0, mebibytes: 8) }
        let ending = try await run(versions.map { ("prefetch", [$0]) })
        let output = "aurora/1 \naurora/1 aurora/2 \naurora/2 aurora/3 \n"
        #expect(ending == Program.Ending(status: 0, output: output, error: ""))
    }

    @Test func aPackOnDemandGoesWhereAnUpdateDoesNotFit() async throws {
        let versions = try (1...2).map { try SamplePack.large(.aurora, version: $0, mebibytes: 8) }
        var other = try SamplePack.large(try PackID("oceans"), version: 1, mebibytes: 8)
        other.pack.policy = .onDemand
        let ending = try await run([
            ("prefetch", [versions[0], other]), ("fetch oceans", [versions[0], other]),
            ("prefetch", [versions[1], other]),
        ])
        let output = "aurora/1 \naurora/1 oceans/1 \naurora/1 aurora/2 \n"
        #expect(ending == Program.Ending(status: 0, output: output, error: ""))
    }

    /// Two versions share a file of 20 MB, other data fill the disk, and a third version does not fit.
    @Test func noGenerationGoesWhoseFilesOthersKeep() async throws {
        let steps = """
            head -c 20000000 /dev/urandom >files/big; echo 1 >files/small; publish 1; prefetch -q
            echo 2 >files/small; publish 2; prefetch -q
            $P du --container disk/container | tr -s ' ' | grep -c '^all 20.[01] MB'
            head -c 25000000 /dev/zero >disk/other
            head -c 20000000 /dev/urandom >files/big; publish 3
            stage plan >plan.txt || echo "status $?"; grep room plan.txt || true
            prefetch -q || echo "status $?"
            ls disk/container/generations/ev | wc -l
            stage gc --previous --dry-run | sed 's/[0-9.]* kB/SIZE/'
            $P rollback ev --container disk/container -q && ls disk/container/packs/ev/files
            """
        let ending = try await publishing(mebibytes: 60, steps)
        #expect(ending.status == 0, "\(ending)")
        let output = """
            1
            status 40
            status 40
            2
            would evict ev 1 (SIZE, the previous generation)
            would remove 1 generation, 0 packs
            big
            small

            """
        #expect(ending.output == output, "\(ending)")
        #expect(ending.error.contains("pack 'ev': not enough space: 36.8 MB needed"), "\(ending)")
    }

    /// If an interrupted run has left a pack nearly complete, only the rest needs space.
    ///
    /// A file of a download without allocated blocks takes no space.
    @Test func anUnfinishedPackIsShownAndNeedsNoSpaceAgain() async throws {
        let steps = """
            head -c 20000000 /dev/urandom >files/big; echo 1 >files/small; publish 1; prefetch -q
            cd disk/container; name=$(ls generations/ev)
            mv generations/ev/$name staging/ev.${name#1-}; rm packs/ev; cd ../..
            truncate -s 30M "disk/container/downloads/$(printf '%064d' 0).part.1"
            head -c 17000000 /dev/zero >disk/other
            $P du --container disk/container | tr -s ' ' | grep -v -e container -e kept
            stage plan >plan.txt; prefetch -q
            $P du --container disk/container | grep -c unfinished || true
            ls disk/container/packs
            """
        let ending = try await publishing(mebibytes: 60, steps)
        let output = """
            downloads 0 B
            unfinished packs 20.0 MB
            all 20.0 MB
            0
            ev

            """
        #expect(ending == Program.Ending(status: 0, output: output, error: ""))
    }

    /// An update of a small file beside one of 20 MB, and a first installation of 2,000 links, of which each would take a block.
    @Test func linksTakeNoSpaceOfTheirContent() async throws {
        let update = """
            head -c 20000000 /dev/urandom >files/big; echo 1 >files/small; publish 1; prefetch -q
            echo 2 >files/small; publish 2
            stage plan | grep -o 'at most [0-9.]* kB on disk' | sed 's/[0-9.]* kB/SIZE/'; prefetch -q
            ls disk/container/generations/ev | wc -l
            """
        let first = """
            echo 1 >files/file
            number=0; while [ $number -lt 2000 ]; do
                number=$((number + 1)); ln -s file files/$number
            done
            publish 1; prefetch -q; ls disk/container/packs/ev/files | wc -l
            """
        let updated = try await publishing(mebibytes: 40, update)
        let output = "at most SIZE on disk\n2\n"
        #expect(updated == Program.Ending(status: 0, output: output, error: ""))
        let installed = try await publishing(mebibytes: 19, first)
        #expect(installed == Program.Ending(status: 0, output: "2001\n", error: ""))
    }

    /// 1,000 empty files in 6,001 directories, and a function that stages them and prints the number of created files.
    private static let levels = """
        mkdir -p $(seq -f 'files/%g/a/b/c/d/e' 1 1000)
        seq -f 'files/%g/a/b/c/d/e/file' 1 1000 | xargs touch
        hide() { sed -i 's/"directoryCount"/"unknown"/' store/manifest.json; }
        try() {
            prefetch -q || echo "status $?"
            find disk/container/staging -path '*/content/*' | wc -l
        }

        """

    /// The space and the inodes for directories are compared before the first one is created: by the index, and by the plan if
    /// the manifest states their number.
    @Test(arguments: [false, true])
    func directoriesThatDoNotFitAreNotCreated(isStated: Bool) async throws {
        let steps = """
            \(Self.levels)
            publish 1
            \(isStated ? "" : "hide")
            try; mount -o remount,size=64m,nr_inodes=3000 disk
            try; mount -o remount,size=64m,nr_inodes=100000 disk
            try; find disk/container/packs/ev/ -type d | wc -l
            """
        let ending = try await publishing(mebibytes: 23, steps)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == "status 40\n0\nstatus 40\n0\n0\n6002\n", "\(ending)")
        // The plan counts the listing and the index, too, and the reserve.
        let errors = [
            "not enough space: \(isStated ? "42." : "41.4 MB needed")",
            "not enough space: \(isStated ? 7077 : 7065) inodes needed, of which 64 stay free; free: ",
        ]
        #expect(errors.allSatisfy { ending.error.contains("pack 'ev': \($0)") }, "\(ending)")
    }

    /// The archive and 1,000 files fit; with a block for each directory they do not.
    @Test(arguments: [false, true])
    func directoriesOfAnArchiveCountIfTheManifestStatesThem(isStated: Bool) async throws {
        let publish = """
            \(Self.levels)
            $P package recipe.json -o store/ev.tar.gz -q
            $P manifest add store/manifest.json store/ev.tar.gz --recipe recipe.json \\
                --pack-version 1 -q
            """
        let refused = """
            try; mount -o remount,size=64m,nr_inodes=3000 disk
            try; ls disk/container/downloads | wc -l
            mount -o remount,size=64m,nr_inodes=100000 disk
            """
        let steps = """
            \(publish)
            \(isStated ? refused : "hide")
            try; find disk/container/packs/ev/ -type d | wc -l
            """
        let ending = try await publishing(mebibytes: 40, steps)
        let refusals = isStated ? "status 40\n0\nstatus 40\n0\n0\n" : ""
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == refusals + "0\n6002\n", "\(ending)")
        guard isStated else { return }
        let errors = ["not enough space: 45.", "not enough space: 7077 inodes needed, "]
        #expect(errors.allSatisfy { ending.error.contains("pack 'ev': \($0)") }, "\(ending)")
    }

    /// Runs read the index of a pack that does not fit by its number of files; only content that the disk cannot hold is a problem.
    @Test(
        arguments: [
            (
                ByteCount(1_000_000),
                "note: space: SIZE free, essential packs need at most SIZE: the next run reads from their indexes "
                    + "whether they fit\n"
            ),
            (
                ByteCount.mebibytes(400),
                "problem: space: SIZE free, essential packs need SIZE: SIZE are missing\n"
            ),
        ]
    )
    func doctorComparesTheFreeSpaceAsRunsDo(
        installedSize: ByteCount,
        finding: String
    ) async throws {
        var world = try World()
        var pack = try SamplePack.small(.aurora)
        let digest = pack.pack.contentDigest
        let size = ByteCount(1000)
        pack.pack.index = PackIndex(
            url: "i/1",
            size: size,
            digest: digest,
            contentSize: size,
            contentDigest: digest,
            bundleSize: size
        )
        pack.pack.fileCount = 50_000
        pack.pack.installedSize = installedSize
        try world.publish(pack)
        let text = """
            C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=100m none "$C"
            $P prefetch "$@" 2>/dev/null; test $? = 40 || exit 99
            $P doctor --container "$C" | grep ': space: '
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let ending = try await world.program.run(["--attempts", "1", "--quiet"] + world.source)
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.replacing(#/[0-9.]+ [kMG]B/#, with: "SIZE") == finding)
    }

    /// The eviction of the pack on demand frees the missing inodes.
    @Test func aRunEvictsForInodesAndAPlanNamesThem() async throws {
        var world = try World()
        func pack(_ name: String, _ policy: DownloadPolicy, files: Int) throws -> SamplePack {
            let entries = (0..<files).map { TarBuilder.Entry("\($0)", content: [1]) }
            return try SamplePack(try PackID(name), policy: policy, entries)
        }
        try world.publish(
            try pack("extra", .onDemand, files: 300),
            try pack("many", .essential([.firstInstallation, .subsequentUpdate]), files: 200)
        )
        let text = """
            C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=64m,nr_inodes=1000 none "$C"
            $P fetch extra "$@" --quiet || exit 99
            set -- $(stat -f -c '%c %d' "$C") "$@"
            used=$(($1 - $2)); shift 2
            mount -o remount,nr_inodes=$((used + 200)) "$C" || exit 98
            $P plan --json "$@" | grep '"inodes"'
            $P prefetch "$@" --quiet || exit 97
            ls "$C/packs"
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let ending = try await world.program.run(world.source)
        #expect(ending.status == 0, "\(ending)")
        // 200 files, a directory, and the container's records.
        #expect(ending.output.contains(#/"inodes" : 213,/#), "\(ending)")
        #expect(ending.output.hasSuffix("\nmany\n"), "\(ending)")
    }

    /// Only inodes are missing.
    @Test func doctorNamesMissingInodes() async throws {
        var world = try World()
        let files = (0..<600).map { TarBuilder.Entry("\($0)", content: [1]) }
        try world.publish(try SamplePack(.aurora, files))
        let text = """
            C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"; mount -t tmpfs -o size=100m,nr_inodes=500 none "$C"
            $P prefetch "$@" 2>/dev/null; test $? = 40 || exit 99
            $P doctor --container "$C" | grep -A1 ': space: '
            """
        world.program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        let ending = try await world.program.run(["--attempts", "1", "--quiet"] + world.source)
        #expect(ending.status == 0, "\(ending)")
        // 600 files, a directory, the container's records, and the reserve.
        let finding = """
            problem: space: COUNT inodes free, essential packs need 677: COUNT missing
              hint: delete files ('df -i' counts them) or use a file system with more inodes
            """
        let output = ending.output.replacing(#/\d+ (inodes|missing)/#) { "COUNT \($0.1)" }
        #expect(output.hasPrefix(finding), "\(ending)")
    }

    /// Runs a script of the shell with an empty `disk` of the given size, and with functions that publish a version of the
    /// indexed pack of `files`, and stage it in `disk/container`.
    private func publishing(mebibytes: Int, _ steps: String) async throws -> Program.Ending {
        var program = try World().program
        let text = """
            set -e; P='\(try Program.path)'; cd '\(try TemporaryDirectory.required().path)'
            rm -rf store files; mkdir -p store files disk
            mount -t tmpfs -o size=\(mebibytes)m none disk
            cat >recipe.json <<'END'
            {"assetPackID": "ev", "fileSelectors": [{"directory": "files"}], "downloadPolicy":
             {"essential": {"installationEventTypes": ["firstInstallation", "subsequentUpdate"]}}}
            END
            $P manifest create --application net.example.app -o store/manifest.json
            publish() {
                $P package recipe.json --indexed --no-archive --level 1 -o store --json >index.json
                index=store/i/$(sed -n 's/.*"sha256" : "\\(.*\\)".*/\\1/p' index.json)
                $P manifest add store/manifest.json "$index" --recipe recipe.json --pack-version $1 -q
            }
            stage() {
                command=$1; shift
                $P $command --manifest "file://$PWD/store/manifest.json" \\
                    --container disk/container "$@"
            }
            prefetch() { stage prefetch --progress none --attempts 1 "$@"; }
            \(steps)
            """
        program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", text, "sh"]
        return try await program.run([])
    }
}
