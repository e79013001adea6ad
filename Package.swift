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

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")

/// A library of the house, which may import only what is named here.
func library(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

/// The tests of one module.
func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: "\(name)Tests", dependencies: dependencies, swiftSettings: strict)
}

let package = Package(
    name: "StagePack",
    products: [
        .executable(name: "stagepack", targets: ["stagepack"])
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
    ],
    targets: [
        // 0: the C libraries
        .systemLibrary(name: "CLinux"),
        .systemLibrary(
            name: "CArchive",
            pkgConfig: "libarchive",
            providers: [.apt(["libarchive-dev"])]
        ),
        .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),

        // 1: values, and the file system
        library("StageModel", []),
        library("StageSystem", ["CLinux", system]),

        // 2: one module a C library
        library("StageDigest", ["CCrypto", "StageModel", "StageSystem", system]),

        library(
            "StageArchive",
            ["CArchive", "CLinux", "StageModel", "StageSystem", logging, system]
        ),

        // 7: the executables
        .executableTarget(
            name: "stagepack",
            dependencies: [
                "StageModel",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict
        ),

        // What tests of several modules need, and an executable for the tests that start processes
        .target(
            name: "StageTesting",
            dependencies: ["CArchive", "StageModel", "StageSystem", system],
            path: "Tests/StageTesting",
            swiftSettings: strict
        ),
        .executableTarget(
            name: "unpack-service",
            dependencies: ["StageArchive", system],
            path: "Tests/UnpackServiceMain",
            swiftSettings: strict
        ),

        tests("StageModel", ["StageModel"]),
        tests("StageSystem", ["StageSystem", "StageTesting", system]),
        tests("StageDigest", ["StageDigest", "StageModel"]),
        tests(
            "StageArchive",
            [
                "StageArchive", "StageModel", "StageSystem", "StageTesting", "unpack-service",
                logging,
                system,
            ]
        ),
    ]
)
