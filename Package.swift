// swift-tools-version: 6.2
import PackageDescription

/// What every Swift target is compiled with, tests included.
let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
]

/// The trait of the programs, which a package that depends on the libraries alone leaves out (`traits: []`).
///
/// Without it SwiftPM downloads no package that the programs alone need.
let tools = "Tools"

/// A library of another package that the client products need.
func external(_ name: String, _ package: String) -> Target.Dependency {
    .product(name: name, package: package)
}

/// A library of another package that the programs alone need.
func tool(_ name: String, _ package: String) -> Target.Dependency {
    .product(name: name, package: package, condition: .when(traits: [tools]))
}

let logging = external("Logging", "swift-log")
let subprocess = external("Subprocess", "swift-subprocess")
let system = external("SystemPackage", "swift-system")

let arguments = tool("ArgumentParser", "swift-argument-parser")
let database = tool("GRDB", "GRDB.swift")
let deque = tool("DequeModule", "swift-collections")
let heap = tool("HeapModule", "swift-collections")
let httpServer = tool("HummingbirdCore", "hummingbird")
let hummingbird = tool("Hummingbird", "hummingbird")
let nio = tool("NIOPosix", "swift-nio")
let nioCore = tool("NIOCore", "swift-nio")
let signals = tool("UnixSignals", "swift-service-lifecycle")

/// A library of the house, which may import only what is named here.
func library(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

/// A C library of the system.
func cLibrary(_ name: String, _ pkgConfig: String, _ package: String) -> Target {
    .systemLibrary(name: name, pkgConfig: pkgConfig, providers: [.apt([package])])
}

/// The commit that `make` builds, for the one file that tells it.
///
/// SwiftPM reads that of the clone only when this file changes.
let commit: [CSetting] =
    Context.environment["STAGEPACK_COMMIT"].flatMap { commit in
        commit.isEmpty ? nil : [.define("STAGEPACK_COMMIT", to: "\"\(commit)\"")]
    } ?? []

/// What test code is compiled with.
///
/// Not optimised in release builds either: the libraries and programs under test are, and the compiler takes minutes more to
/// optimise the tests.
let testing: [SwiftSetting] =
    strict + [.unsafeFlags(["-Onone"], .when(configuration: .release))]

/// The tests of one module.
func tests(
    _ name: String,
    _ dependencies: [Target.Dependency],
    exclude: [String] = []
) -> Target {
    .testTarget(
        name: "\(name)Tests",
        dependencies: dependencies,
        exclude: exclude,
        swiftSettings: testing
    )
}

// A product has every module whose types its public declarations use, so that a client may import it.
let values = ["StageModel", "StageSystem"]
let packs = values + ["StageContainer", "StagePack"]
let engine =
    values + [
        "StageArchive", "StageContainer", "StageEngine", "StageTransfer", "StageTrust",
    ]
let service = engine + ["StageControl", "StageExtension", "StagePack", "StagingService"]

let package = Package(
    name: "StagePack",
    products: [
        .library(
            name: "BackgroundAssets",
            targets: packs + ["BackgroundAssets", "ExtensionFoundation"]
        ),
        .library(
            name: "BackgroundTransfer",
            targets: ["BackgroundTransfer", "StageControl", "StageURLSession"]
        ),
        .library(
            name: "StoreKit",
            targets: packs + ["BackgroundAssets", "ExtensionFoundation", "StoreKit"]
        ),
        .library(name: "StagePack", targets: packs),
        .library(name: "StageEngine", targets: engine),
        .library(name: "StageExtension", targets: values + ["StageExtension"]),
        .library(name: "StageModel", targets: ["StageModel"]),
        .library(name: "StageOnDemand", targets: service + ["StageOnDemand"]),
        .library(name: "StagingService", targets: service),
        .library(
            name: "StageWebSocketClient",
            targets: values + ["StageTransfer", "StageWebSocket", "StageWebSocketClient"]
        ),
        .library(name: "WallpaperStore", targets: packs + ["WallpaperStore"]),
        .executable(
            name: "sample-downloader-extension",
            targets: ["sample-downloader-extension"]
        ),
        .executable(name: "stagepack", targets: ["stagepack"]),
    ],
    traits: [
        .trait(name: tools, description: "The programs 'stagepack' and 'stagepackd'."),
        .default(enabledTraits: [tools]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/swiftlang/swift-subprocess", from: "1.0.2", traits: []),
    ],
    targets: [
        // 0: the C libraries
        .systemLibrary(name: "CLinux"),
        cLibrary("CArchive", "libarchive", "libarchive-dev"),
        cLibrary("CCrypto", "libcrypto", "libssl-dev"),
        cLibrary("CCurl", "libcurl", "libcurl4-openssl-dev"),
        cLibrary("CSystemd", "libsystemd", "libsystemd-dev"),
        cLibrary("CZlib", "zlib", "zlib1g-dev"),
        cLibrary("CZstd", "libzstd", "libzstd-dev"),

        // 1: values, the file system, and Foundation's challenges
        library("StageModel", []),
        library("StageSystem", ["CLinux", system]),
        library("StageChallenge", []),

        // 2: one module a C library
        library("StageDigest", ["CCrypto", "StageModel", "StageSystem", system]),
        library(
            "StageArchive",
            ["CArchive", "CLinux", "StageModel", "StageSystem", logging, system]
        ),
        library("StageTransfer", ["CCurl", "StageModel", "StageSystem", logging, system]),

        library("StageFrame", ["CZstd"]),
        library("StageWebSocket", ["CZlib"]),

        // 3: the shared directory, indexed packs, and signed metadata
        library("StageIndex", ["StageModel"]),
        library("StageTrust", ["StageDigest", "StageModel"]),
        library("StageContainer", ["StageModel", "StageSystem", system]),
        library(
            "StageWebSocketClient",
            ["StageModel", "StageSystem", "StageTransfer", "StageWebSocket"]
        ),

        // 4: planning and staging, and the programs that have a say in it
        library("StageConditions", ["CSystemd", "StageSystem", logging, system]),
        library("StageControl", ["StageModel", "StageSystem", system]),
        library(
            "StageSigning",
            ["StageDigest", "StageModel", "StageSystem", "StageTrust", system]
        ),
        library("StageExtension", ["StageModel", "StageSystem", logging, system]),
        library(
            "StageEngine",
            [
                "StageArchive", "StageContainer", "StageDigest", "StageFrame", "StageIndex",
                "StageModel", "StageSystem", "StageTransfer", "StageTrust", logging, system,
            ]
        ),

        // 5: the public libraries
        library(
            "StageURLSession",
            [
                "StageChallenge", "StageContainer", "StageControl", "StageModel", "StageSystem",
                "StageTransfer", "StageWebSocket", "StageWebSocketClient", logging, system,
            ]
        ),
        library("StagePack", ["StageContainer", "StageModel", "StageSystem", subprocess, system]),
        library("ExtensionFoundation", []),
        library("StoreKit", ["BackgroundAssets"]),
        library("StageDisplay", ["StageEngine", "StageModel"]),
        library(
            "StagePublish",
            [
                "StageArchive", "StageDigest", "StageFrame", "StageIndex", "StageModel",
                "StageSigning", "StageSystem", "StageTransfer", "StageTrust", system,
            ]
        ),

        // 6: the reader as an application uses it, the development origin, the daemon, and staging
        library(
            "StageOrigin",
            [
                "StageDigest", "StageModel", "StageSystem", "StageWebSocket", hummingbird,
                httpServer, logging, nio, nioCore, system,
            ]
        ),
        library(
            "StageDaemon",
            [
                "CSystemd", "StageConditions", "StageControl", "StageDigest", "StageModel",
                "StageSystem", "StageTransfer", database, deque, heap, httpServer, logging, nio,
                nioCore, system,
            ]
        ),
        library("BackgroundTransfer", ["StageControl", "StageURLSession"]),
        library("WallpaperStore", ["StagePack"]),
        library(
            "BackgroundAssets",
            [
                "ExtensionFoundation", "StageChallenge", "StageContainer", "StageControl",
                "StageExtension", "StageModel", "StagePack", "StageSystem", logging, system,
            ]
        ),
        library(
            "StagingService",
            [
                "StageArchive", "StageConditions", "StageContainer", "StageControl", "StageDigest",
                "StageEngine", "StageExtension", "StageModel", "StagePack", "StageSystem",
                "StageTransfer", "StageTrust", logging, system,
            ]
        ),

        // 7: fetching inside an application
        library(
            "StageOnDemand",
            [
                "StageContainer", "StageControl", "StageEngine", "StageModel", "StagePack",
                "StagingService", logging, system,
            ]
        ),

        // 8: the executables, and what runs in them before anything else
        .target(name: "ProgramStart", cSettings: commit),
        .executableTarget(
            name: "stagepack",
            dependencies: [
                "ProgramStart", "StageArchive", "StageContainer", "StageControl",
                "StageDaemonCommand", "StageDigest", "StageDisplay", "StageEngine", "StageFrame",
                "StageIndex", "StageModel", "StageOrigin", "StagePack",
                "StagePublish", "StageSigning", "StageSystem", "StageTransfer", "StageTrust",
                "StagingService", arguments, logging, subprocess, system,
            ],
            swiftSettings: strict
        ),

        // The daemon is the same program under another name
        .target(
            name: "StageDaemonCommand",
            dependencies: [
                "ProgramStart", "StageControl", "StageDaemon", "StageSystem", "StageTransfer",
                arguments, logging, signals, system,
            ],
            swiftSettings: strict
        ),

        // What tests of several modules need, and an executable for the tests that start processes
        .target(
            name: "StageTesting",
            dependencies: [
                "CArchive", "StageControl", "StageDigest", "StageModel", "StageOrigin",
                "StageSystem", "StageTrust", "StageWebSocket", logging, system,
            ],
            path: "Tests/StageTesting",
            swiftSettings: strict
        ),
        .systemLibrary(name: "DecoderAttempts", path: "Tests/DecoderAttempts"),
        .systemLibrary(name: "TokenProvider", path: "Tests/TokenProvider"),
        .executableTarget(
            name: "unpack-service",
            dependencies: [
                "DecoderAttempts", "StageArchive", "StageEngine", "StageModel", "StageSystem",
                "StagingService", logging, system,
            ],
            path: "Tests/UnpackServiceMain",
            swiftSettings: strict
        ),

        // A client for the public conformance suite of The Update Framework
        .executableTarget(
            name: "tuf-conformance-client",
            dependencies: ["StageModel", "StageTrust"],
            path: "Tests/TUFConformanceClient",
            swiftSettings: strict
        ),

        // A client for conformance suites of WebSocket
        .executableTarget(
            name: "websocket-conformance-client",
            dependencies: [
                "StageTransfer", "StageWebSocket", "StageWebSocketClient", logging, system,
            ],
            path: "Tests/WebSocketConformanceClient",
            swiftSettings: strict
        ),

        // A client with a WebSocket task, for what a session reads of the environment
        .executableTarget(
            name: "websocket-task-client",
            dependencies: ["BackgroundTransfer"],
            path: "Tests/WebSocketTaskClient",
            swiftSettings: strict
        ),

        // A client with a data task, for processes that lack something
        .executableTarget(
            name: "data-task-client",
            dependencies: ["BackgroundTransfer"],
            path: "Tests/DataTaskClient",
            swiftSettings: strict
        ),

        // An application that uploads in presigned parts, to be killed
        .executableTarget(
            name: "presigned-upload-client",
            dependencies: ["BackgroundTransfer"],
            path: "Tests/PresignedUploadClient",
            swiftSettings: strict
        ),

        // A sample of a manager of downloads
        .executableTarget(
            name: "background-downloads",
            dependencies: ["BackgroundTransfer"],
            path: "Examples/BackgroundDownloads",
            swiftSettings: strict
        ),

        // An application with downloads in the background, ported by one import
        .executableTarget(
            name: "podcast-downloader",
            dependencies: ["BackgroundTransfer"],
            path: "Examples/PodcastDownloader",
            swiftSettings: strict
        ),

        // A game with asset packs, and its downloader extension
        .executableTarget(
            name: "sample-game",
            dependencies: ["BackgroundAssets"],
            path: "Examples/Game",
            swiftSettings: strict
        ),
        .executableTarget(
            name: "sample-game-extension",
            dependencies: ["BackgroundAssets"],
            path: "Examples/GameExtension",
            swiftSettings: strict
        ),

        // A sample of a downloader extension
        .executableTarget(
            name: "sample-downloader-extension",
            dependencies: ["BackgroundAssets"],
            path: "Examples/DownloaderExtension",
            swiftSettings: strict
        ),

        // What 'make bench' measures from inside a process
        .executableTarget(
            name: "LoadPackBenchmark",
            dependencies: ["StagePack", system],
            path: "Benchmarks/LoadPack",
            swiftSettings: strict
        ),

        tests("StageModel", ["StageModel", "StageTesting"]),
        tests("StageDisplay", ["StageDisplay", "StageEngine", "StageModel"]),
        tests(
            "StageOrigin",
            ["StageOrigin", "StageModel", "StageSystem", "StageTesting", logging, system]
        ),
        tests(
            "StagePublish",
            [
                "StageArchive", "StageDigest", "StageModel", "StagePublish", "StageSystem",
                "StageTesting", "StageTransfer", "unpack-service", logging, subprocess, system,
            ]
        ),
        tests("StageSystem", ["DecoderAttempts", "StageSystem", "StageTesting", system]),
        tests(
            "StageConditions",
            ["StageConditions", "StageSystem", "StageTesting", logging, system]
        ),
        tests(
            "StageSigning",
            [
                "StageDigest", "StageModel", "StageSigning", "StageSystem", "StageTesting",
                "StageTrust", system,
            ]
        ),
        tests("StageTrust", ["StageDigest", "StageModel", "StageTesting", "StageTrust"]),
        tests(
            "StageIndex",
            ["StageDigest", "StageFrame", "StageIndex", "StageModel", "StageTesting"]
        ),
        tests(
            "StageDigest",
            [
                "CCrypto", "StageDigest", "StageModel", "StageSystem", "StageTesting",
                "TokenProvider",
                system,
            ]
        ),
        tests(
            "StageArchive",
            [
                "StageArchive", "StageModel", "StageSystem", "StageTesting", "unpack-service",
                logging,
                system,
            ]
        ),
        tests(
            "StageTransfer",
            [
                "StageTransfer", "StageTesting", "StageDigest", "StageModel", "StageSystem",
                logging,
                system,
            ]
        ),
        tests(
            "StageControl",
            [
                "stagepack", "StageControl", "StageModel", "StageSystem",
                "StageTesting",
                system,
            ]
        ),
        tests(
            "BackgroundTransfer",
            [
                "BackgroundTransfer", "StageControl", "StageModel", "StageOrigin", "StageSystem",
                "StageTesting", "StageURLSession", "StageWebSocket", "background-downloads",
                "data-task-client", "stagepack", "websocket-task-client", logging, system,
            ]
        ),
        // Source as it is written for Apple's systems, compiled as an application compiles it
        .testTarget(
            name: "PortedSourceTests",
            dependencies: ["BackgroundAssets", "BackgroundTransfer", "StoreKit"],
            swiftSettings: [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
        ),
        .testTarget(
            name: "PortedSwift5SourceTests",
            dependencies: ["BackgroundAssets", "BackgroundTransfer"],
            swiftSettings: [.swiftLanguageMode(.v5), .treatAllWarnings(as: .error)]
        ),
        tests(
            "StageDaemon",
            [
                "background-downloads", "podcast-downloader", "presigned-upload-client",
                "stagepack", "BackgroundTransfer", "StageConditions", "StageControl",
                "StageDaemon", "StageDigest", "StageModel", "StageSystem", "StageTesting",
                "StageTransfer", "StageURLSession", logging, nioCore,
                tool("NIOEmbedded", "swift-nio"),
                subprocess,
                system,
            ]
        ),
        tests(
            "StageEngine",
            [
                "StageArchive", "StageContainer", "StageEngine", "StageIndex", "StageModel",
                "StagePublish", "StageSystem", "StageTesting", "StageTransfer", "unpack-service",
                logging, system,
            ]
        ),
        tests(
            "StageExtension",
            [
                "StageExtension", "StageModel", "StageSystem", "StageTesting",
                "sample-downloader-extension", logging, system,
            ]
        ),
        tests(
            "BackgroundAssets",
            [
                "stagepack", "BackgroundAssets", "ExtensionFoundation",
                "StageContainer",
                "StageControl", "StageDigest", "StageExtension", "StageModel", "StagePack",
                "StageSystem", "StageTesting", system,
            ]
        ),
        tests(
            "StageWebSocketClient",
            [
                "StageModel", "StageOrigin", "StageSystem", "StageTesting", "StageTransfer",
                "StageWebSocket",
                "StageWebSocketClient", logging, system,
            ]
        ),
        tests("StageWebSocket", ["StageWebSocket", "StageTesting"]),
        tests(
            "StageContainer",
            ["StageContainer", "StageModel", "StageSystem", "StageTesting", system]
        ),
        tests(
            "StagePack",
            [
                "StageContainer", "StageDigest", "StageModel", "StagePack", "StageSystem",
                "StageTesting", "WallpaperStore", system,
            ]
        ),
        tests(
            "StagePackCommand",
            [
                "sample-game", "sample-game-extension", "stagepack",
                "StageContainer", "StageControl", "StageDigest", "StageEngine", "StageFrame",
                "StageIndex", "StageModel", "StageOnDemand", "StagePack",
                "StagePublish", "StageSystem", "StageTesting", "StageTransfer", "StageTrust",
                "StagingService", "WallpaperStore", logging, subprocess, system,
            ],
            exclude: ["Golden"]
        ),
    ]
)

// 'make docs' builds the site of the documentation with this plugin; clients do not resolve it.
if Context.environment["STAGEPACK_DOCS"] != nil {
    package.dependencies.append(
        .package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.5.0")
    )
}
