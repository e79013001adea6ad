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
let subprocess = Target.Dependency.product(name: "Subprocess", package: "swift-subprocess")
let hummingbird = Target.Dependency.product(name: "Hummingbird", package: "hummingbird")
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
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/swiftlang/swift-subprocess", from: "1.0.2", traits: []),
    ],
    targets: [
        // 0: the C libraries
        .systemLibrary(name: "CLinux"),
        .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),

        // 1: values, and the file system
        library("StageModel", []),
        library("StageSystem", ["CLinux", system]),

        // 2: one module a C library
        library("StageDigest", ["CCrypto", "StageModel", "StageSystem", system]),

        // 3: the shared directory
        library("StageContainer", ["StageModel", "StageSystem", system]),

        // 4: the development origin
        library(
            "StageOrigin",
            ["StageDigest", "StageModel", "StageSystem", hummingbird, logging, system]
        ),

        // 5: the public libraries
        library("StagePack", ["StageContainer", "StageModel", "StageSystem", subprocess, system]),

        // 6: the reader as an application uses it
        library("WallpaperStore", ["StagePack"]),

        // 7: the executables
        .executableTarget(
            name: "stagepack",
            dependencies: [
                "StageModel",
                "StageOrigin",
                logging,
                system,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: strict
        ),

        tests("StageModel", ["StageModel"]),
        tests("StageSystem", ["StageSystem", system]),
        tests("StageDigest", ["StageDigest", "StageModel"]),
        tests("StageContainer", ["StageContainer", "StageModel", "StageSystem", system]),
        tests("StageOrigin", ["StageOrigin", "StageModel", "StageSystem", logging, system]),
    ]
)
