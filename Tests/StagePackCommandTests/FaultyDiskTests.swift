import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// File systems that must be mounted: the program runs in a separate mount namespace, which needs
/// root.
@Suite(.server, .directory, .mountNamespace)
struct FaultyDiskTests {
    private func run(
        _ world: World,
        _ script: String,
        body: @escaping @Sendable () async throws -> Void = {}
    ) async throws -> Program.Ending {
        var program = world.program
        let names = """
            set -e; D='\(world.directory.path)'; C='\(world.container)'; P='\(try Program.path)'
            mkdir -p "$C"

            """
        program.wrapper = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", names + script, "sh"]
        return try await program.run(["--quiet"] + world.source) { _ in try await body() }
    }

    /// Changes bytes of a file in the image that a file system is on, below the system's cache.
    private static let damage = #"""
        import sys
        image, file = open(sys.argv[1], "r+b"), open(sys.argv[2], "rb").read()
        data, part = image.read(), file[65536:66048]
        place = data.index(part)
        assert data.find(part, place + 1) == -1
        image.seek(place)
        image.write(b"\0" * 512)
        """#

    /// The kernel's cache keeps data that it failed to write, so content of an earlier run is read from the disk.
    @Test func anAreaIsContinuedWithWhatTheDiskHas() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(1_000_000, seed: 1), "b": noise(4_000_000, seed: 2)])
        let index = try await publisher.package(version: 1)
        let gate = Gate()
        try publisher.publish(index, version: 1) { $0.held(after: 2 << 20, until: gate) }
        let killed = world.directory.path.appending("killed")
        try world.directory.write(Array(Self.damage.utf8), to: "damage.py", durably: false)
        let ending = try await run(
            world,
            #"""
            truncate -s 64M "$D/image"; mkfs.ext4 -q "$D/image"; mount -o loop "$D/image" "$C"
            trap 'umount "$C"' EXIT
            $P fetch levels "$@" & process=$!
            for _ in $(seq 30000); do
                cmp -s "$C"/staging/levels.*/content/a "$D/tree/a" && break
                sleep 0.01
            done
            kill -9 $process; wait $process || true; touch "$D/killed"
            sync -f "$C"
            python3 "$D/damage.py" "$D/image" "$D/tree/a"
            cmp "$C"/staging/levels.*/content/a "$D/tree/a" || exit 98
            $P fetch levels "$@"
            umount "$C"; mount -o loop "$D/image" "$C"
            $P verify --container "$C"
            """#
        ) {
            try await poll("nothing is killed") { FileStatus.exists(killed) }
            gate.open()
        }
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == "levels: as it was staged\n")
    }

    /// A file system over an image of a container with staged packs.
    @Test func packsOfAnImageAreUpdatedRemovedAndCollected() async throws {
        var world = try World()
        let first = try SamplePack.small(.aurora)
        let second = try SamplePack.small(.aurora, version: 2)
        // The pack is not essential, because 'doctor' reports missing essential packs.
        let other = try SamplePack.small(
            try PackID("oceans"),
            policy: .prefetch([.firstInstallation, .subsequentUpdate])
        )
        let answers = try [[first, other], [second, other]].map {
            let answer = Answer.content(try world.manifest(of: $0))
            try world.publish($0)
            return answer
        }
        world.server.answer("/manifest.json", with: answers)
        let ending = try await run(
            world,
            #"""
            $P prefetch "$@"
            mkdir -p "$D/lower" "$D/upper" "$D/work"; mv "$C" "$D/lower/"; mkdir "$C"
            mount -t overlay overlay \
                -o "lowerdir=$D/lower/container,upperdir=$D/upper,workdir=$D/work,redirect_dir=off" "$C"
            trap 'umount "$C"' EXIT
            $P prefetch "$@"
            $P gc --previous --container "$C"
            $P remove oceans --container "$C"
            ls "$C/generations" "$C/staging"; ls "$C/generations/aurora" | cut -d- -f1
            $P verify --container "$C"
            $P doctor --container "$C" > /dev/null
            """#
        )
        #expect(ending.status == 0, "\(ending)")
        #expect(
            ending.output
                == """
                removed 1 generation, 0 downloads, 0 leftovers
                oceans: removed
                DIRECTORY/container/generations:
                aurora

                DIRECTORY/container/staging:
                2
                aurora: as it was staged

                """.replacing("DIRECTORY", with: world.directory.path.string)
        )
    }

    /// A file system over an image that was made while a pack was being staged.
    @Test func anAreaOfAnImageIsContinuedAndPublished() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        let files = ["a/b/c": noise(1_000_000, seed: 1), "d/e": noise(4_000_000, seed: 2)]
        try publisher.write(files)
        let index = try await publisher.package(version: 1)
        let gate = Gate()
        try publisher.publish(index, version: 1) { $0.held(after: 2 << 20, until: gate) }
        let killed = world.directory.path.appending("killed")
        let ending = try await run(
            world,
            #"""
            $P fetch levels "$@" & process=$!
            for _ in $(seq 30000); do
                cmp -s "$C"/staging/levels.*/content/a/b/c "$D/tree/a/b/c" && break
                sleep 0.01
            done
            kill -9 $process; wait $process || true; touch "$D/killed"
            mkdir -p "$D/lower" "$D/upper" "$D/work"; mv "$C" "$D/lower/"; mkdir "$C"
            mount -t overlay overlay \
                -o "lowerdir=$D/lower/container,upperdir=$D/upper,workdir=$D/work,redirect_dir=off" "$C"
            trap 'umount "$C"' EXIT
            $P fetch levels "$@" --json | grep -c '"reused" : [1-9]' > /dev/null
            ls "$C/staging"
            $P verify --container "$C"
            """#
        ) {
            try await poll("nothing is killed") { FileStatus.exists(killed) }
            gate.open()
        }
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output == "levels: as it was staged\n")
    }

    /// A mount in a pack cannot be removed with it.
    @Test func aPackThatCannotBeRemovedDoesNotStopOtherRemovals() async throws {
        var world = try World()
        try world.publish(
            try ["one", "three", "two"].map { try .small(try PackID($0), policy: .onDemand) }
        )
        let ending = try await run(
            world,
            #"""
            $P fetch one three two "$@"
            M=$(echo "$C"/generations/three/*/content)/mount
            mkdir "$M"; mount -t tmpfs none "$M"
            $P gc --quota 0 --container "$C" 2> "$D/error" | cut -d' ' -f1-3 || true
            grep -c 'Device or resource busy' "$D/error"
            ls "$C/packs" "$C/generations"
            echo x > "$C/downloads/$(printf %064d 1).part.1"
            status=0; $P gc --container "$C" 2> /dev/null || status=$?
            echo "status $status: $(ls "$C/staging" | wc -l) in staging, $(ls "$C/downloads" | wc -l) downloads"
            umount "$C"/staging/three.*/content/mount
            $P gc --container "$C"; ls "$C/staging"; ls "$C/generations"
            """#
        )
        #expect(ending.status == 0, "\(ending)")
        #expect(
            ending.output.replacing(world.directory.path.string, with: "DIRECTORY")
                == """
                evicted one 1
                evicted three 1
                evicted two 1
                removed 0 generations,
                packs take 0
                1
                DIRECTORY/container/generations:
                three

                DIRECTORY/container/packs:
                removed 0 generations, 1 download, 0 leftovers
                status 41: 1 in staging, 0 downloads
                removed 0 generations, 0 downloads, 1 leftover

                """
        )
    }

    /// A partial download of a version that is no longer offered takes nearly the whole disk.
    @Test func aSupersededDownloadMakesRoomForThePackOfToday() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        let ending = try await run(
            world,
            #"""
            mount -t tmpfs -o size=64m none "$C"; trap 'umount "$C"' EXIT
            $P fetch --manifest-only "$@"
            head -c 50M /dev/zero > "$C/downloads/$(printf %064d 1).part.52428800"
            $P fetch aurora "$@"
            ls "$C/packs" "$C/downloads"
            """#
        )
        #expect(ending.status == 0, "\(ending)")
        #expect(
            ending.output.replacing(world.directory.path.string, with: "DIRECTORY")
                == """
                DIRECTORY/container/downloads:

                DIRECTORY/container/packs:
                aurora

                """
        )
    }
}

/// A file system that cannot refuse to replace a name, as many of FUSE.
@Suite(.server, .directory, .strace)
struct PlainRenameTests {
    @Test func packsArePublishedUpdatedAndRemoved() async throws {
        var world = try World()
        world.program.wrapper = [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e",
            "trace=renameat2", "-e", "inject=renameat2:error=EINVAL", try Program.path.string,
        ]
        for version in 1...2 {
            let pack = try SamplePack.small(.aurora, version: version, policy: .onDemand)
            try world.publish(pack)
            try await world.succeed("fetch", "aurora", "--quiet")
            #expect(try world.staged(.aurora) == StagedFiles(pack))
        }
        try await world.succeed("gc", "--previous", "--quiet")
        #expect(try world.names(in: "generations/aurora").count == 1)
        try await world.succeed("gc", "--quota", "0", "--quiet")
        for name in ["packs", "generations", "staging"] {
            #expect(try world.names(in: name) == [])
        }
    }
}
