// swift-tools-version: 6.2
import PackageDescription

/// The settings of the main package, and the coverage counters that libFuzzer reads.
let fuzzed: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
    .unsafeFlags(["-sanitize=fuzzer", "-enable-testing", "-assert-config", "Debug"]),
]

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")

/// A module of the main package, whose directory `Sources` links to.
func module(
    _ name: String,
    _ dependencies: [Target.Dependency],
    only sources: [String]? = nil
) -> Target {
    .target(name: name, dependencies: dependencies, sources: sources, swiftSettings: fuzzed)
}

let package = Package(
    name: "Fuzzing",
    dependencies: [
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
    ],
    targets: [
        .systemLibrary(name: "CLinux"),
        .systemLibrary(name: "CArchive", pkgConfig: "libarchive"),
        .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto"),
        .systemLibrary(name: "CCurl", pkgConfig: "libcurl"),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib"),
        .systemLibrary(name: "CZstd", pkgConfig: "libzstd"),
        module("StageModel", []),
        module("StageSystem", ["CLinux", system]),
        module("StageDigest", ["CCrypto", "StageModel", "StageSystem", system]),
        module("StageFrame", ["CZstd"]),
        module("StageWebSocket", ["CZlib"]),
        module("StageIndex", ["StageModel"]),
        module("StageTrust", ["StageDigest", "StageModel"]),
        module("StageTransfer", ["CCurl", "StageModel", "StageSystem", logging, system]),
        module("StageControl", ["StageModel", "StageSystem", system]),
        module(
            "StageArchive",
            ["CArchive", "CLinux", "StageModel", "StageSystem", logging, system]
        ),
        module("StageContainer", ["StageModel", "StageSystem", system]),
        module("StageExtension", ["StageModel", "StageSystem", logging, system]),

        // Only the parsers of these modules, which need no server and no engine
        module(
            "StageOrigin",
            ["StageModel", system],
            only: [
                "EntityTag.swift", "Preconditions.swift", "RangeSelection.swift",
                "ServedPath.swift",
            ]
        ),
        module(
            "StagePublish",
            ["StageModel", system],
            only: ["GlobPattern.swift", "Recipe+JSON.swift", "Recipe.swift", "RelaxedJSON.swift"]
        ),
        module(
            "StageDaemon",
            ["StageControl", "StageModel", "StageSystem", system],
            only: ["DaemonConfiguration.swift", "DaemonError.swift"]
        ),
        module(
            "StageTesting",
            ["StageDigest", "StageModel", "StageTrust"],
            only: [
                "SigningKey.swift", "TarBuilder.swift", "TestRepository.swift", "ZipBuilder.swift",
            ]
        ),

        .systemLibrary(name: "CFuzzer"),
        .executableTarget(
            name: "fuzz",
            dependencies: [
                "CFuzzer", "StageArchive", "StageContainer", "StageControl", "StageDaemon",
                "StageDigest", "StageExtension", "StageFrame", "StageIndex", "StageModel",
                "StageOrigin", "StagePublish",
                "StageSystem", "StageTesting", "StageTransfer", "StageTrust", "StageWebSocket",
                system,
            ],
            swiftSettings: fuzzed,
            // libFuzzer needs the C++ standard library; 'run' finds and passes the archive of libFuzzer itself.
            linkerSettings: [.linkedLibrary("stdc++")]
        ),
    ]
)
